"""Texts cut into streams and segments, in order, through epochs, checkpoints and processes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phantomgrad_suite.data import Corpus, LanguageData
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.text.streams import Segments
from phantomgrad_suite.runs.errors import UserError

TEXT = torch.arange(103, dtype=torch.int32)
ALONE = Share()


def segments(text, streams, length, share=ALONE, name="test"):
    return Segments(text, streams, length, share, name)


@given(st.integers(20, 400), st.integers(1, 5), st.integers(1, 3))
def test_segments_are_the_text(tokens, streams, length):
    """Concatenated they are the streams; every token but the first is predicted once."""
    words = torch.arange(tokens, dtype=torch.int32)
    text = segments(words, streams, length)
    batches = [text[i] for i in range(len(text))]
    inputs, targets = (torch.cat([b[i] for b in batches], dim=1) for i in range(2))
    expected = words[: streams * text.length].view(streams, -1).long()
    assert torch.equal(inputs, expected[:, :-1])
    assert torch.equal(targets, expected[:, 1:])
    assert text.length == tokens // streams
    assert [b.first for b in batches] == [True] + [False] * (len(batches) - 1)


@pytest.fixture
def data(monkeypatch):
    """Streams of 25 tokens and five segments; an epoch has three of them."""
    monkeypatch.setattr(LanguageData, "corpus", Corpus({"train": TEXT}, 200, ""))
    return LanguageData(batch_size=4, segment_length=5, segments_per_epoch=3)


def starts(loader, epoch):
    loader.sampler.set_epoch(epoch)
    return [(int(batch.tokens[0, 0]), batch.first) for batch in loader]


def test_partial_epochs_continue_through_the_text(data):
    loader = data.train_dataloader()
    assert len(loader) == 3
    assert starts(loader, 0) == [(0, True), (5, False), (10, False)]
    assert starts(loader, 1) == [(15, False), (20, False), (0, True)]
    assert starts(loader, 2) == [(5, False), (10, False), (15, False)]


def test_processes_share_the_streams():
    """Together they have the streams of one process."""
    alone = segments(TEXT, 6, 4)
    parts = [segments(TEXT, 2, 4, Share(3, process)) for process in range(3)]
    assert all(part.length == alone.length for part in parts)
    together = torch.cat([part[1].tokens for part in parts])
    assert torch.equal(together, alone[1].tokens)


def test_streams_of_an_evaluation_set_are_shared_equally(monkeypatch):
    text = torch.arange(2000, dtype=torch.int32)
    monkeypatch.setattr(LanguageData, "corpus", Corpus({"test": text}, 2000, ""))
    data = LanguageData(test_batch_size=16)
    monkeypatch.setattr(LanguageData, "share", Share(4, 1))
    assert next(iter(data.loader("test"))).tokens.shape == (4, 64)
    monkeypatch.setattr(LanguageData, "share", Share(3, 0))
    with pytest.raises(UserError, match="test_batch_size must be a multiple of the 3 processes"):
        data.val_dataloader()
