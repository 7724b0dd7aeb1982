"""Texts: their words as numbers, and their streams and segments."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from text_data import write_texts

from phantomgrad_suite.data import LanguageData, WikiText103
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.text.corpora import encode, number_words
from phantomgrad_suite.data.text.streams import Segments
from phantomgrad_suite.runs.errors import UserError


@given(st.integers(20, 400), st.integers(1, 5), st.integers(1, 3))
def test_segments_are_the_text(tokens, streams, length):
    """Concatenated they are the streams; every token but the first is predicted once."""
    words = torch.arange(tokens, dtype=torch.int32)
    text = Segments(words, streams, length, Share(), "test")
    batches = [text[i] for i in range(len(text))]
    inputs, targets = (torch.cat([b[i] for b in batches], dim=1) for i in range(2))
    expected = words[: streams * text.length].view(streams, -1).long()
    assert torch.equal(inputs, expected[:, :-1])
    assert torch.equal(targets, expected[:, 1:])
    assert text.length == tokens // streams
    assert [b.first for b in batches] == [True] + [False] * (len(batches) - 1)


def test_streams_of_an_evaluation_set_are_shared_equally(monkeypatch):
    monkeypatch.setattr(LanguageData, "share", Share(3, 0))
    with pytest.raises(UserError, match="test_batch_size must be a multiple of the 3 processes"):
        LanguageData(test_batch_size=16).loader("test")


def test_unknown_word_is_reported_with_file_and_line(tmp_path):
    write_texts(tmp_path / "wikitext-103")
    (tmp_path / "wikitext-103" / "wiki.valid.tokens").write_text("w1 w2\nw3 nowhere\n")
    with pytest.raises(UserError, match=r"wiki\.valid\.tokens, line 2: .* no word 'nowhere'"):
        WikiText103(root=str(tmp_path)).sizes()


def test_unknown_words_become_unk():
    numbers = number_words(["b a\u00a0a", "", "  c a \u2003 b  ", "d"], unknown=True)
    assert [*numbers] == ["<eos>", "a", "b", "c", "d", "<unk>"]
    assert encode(numbers, ["a c e", "b"], "text").tolist() == [1, 3, 5, 0, 2, 0]
