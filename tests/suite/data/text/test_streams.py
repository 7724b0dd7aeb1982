"""Texts cut into streams and segments, in order, through epochs, checkpoints and processes."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from phantomgrad_suite.data import PydocTopics
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.text.streams import Segments, TokenBatch
from phantomgrad_suite.runs.errors import UserError


@pytest.mark.parametrize(
    ("tokens", "streams", "expected"),
    [
        (103_227_021, 56, (1_843_339, 12_289)),
        (217_646, 16, (13_602, 91)),
        (245_569, 16, (15_348, 103)),
    ],
)
def test_layout_of_wikitext103(tokens: int, streams: int, expected: tuple[int, int]) -> None:
    """Tokens and segments of a stream of the three texts; segments of 150 tokens."""
    text = torch.zeros(1, dtype=torch.int32).expand(tokens)
    assert Segments(text, streams, 150).layout == expected


@given(st.integers(20, 400), st.integers(1, 5), st.integers(1, 3))
def test_segments_are_the_text(tokens: int, streams: int, length: int) -> None:
    """Put together they are the streams; every token but the first is predicted once."""
    text = torch.arange(tokens, dtype=torch.int32)
    segments = Segments(text, streams, length)
    batches = list(segments)
    found = segments.layout
    assert len(batches) == len(segments) == found.segments
    inputs, targets = (torch.cat([b[i] for b in batches], dim=1) for i in range(2))  # type: ignore[misc]
    expected = text[: streams * found.length].view(streams, -1).long()
    assert torch.equal(inputs, expected[:, :-1])
    assert torch.equal(targets, expected[:, 1:])
    assert found.length == tokens // streams
    assert [b.first for b in batches] == [True] + [False] * (len(batches) - 1)


TEXT = torch.arange(103, dtype=torch.int32)


def starts(batches: list[TokenBatch]) -> list[tuple[int, bool]]:
    return [(int(batch.tokens[0, 0]), batch.first) for batch in batches]


def test_partial_epochs_continue_through_the_text() -> None:
    """Streams of 25 tokens and five segments; an epoch has three of them."""
    segments = Segments(TEXT, 4, 5, per_epoch=3)
    assert len(segments) == 3
    epochs = [starts(list(segments)) for _ in range(3)]
    assert epochs[0] == [(0, True), (5, False), (10, False)]
    assert epochs[1] == [(15, False), (20, False), (0, True)]
    assert epochs[2] == [(5, False), (10, False), (15, False)]


def test_full_pass_starts_at_the_beginning_after_an_interrupted_one() -> None:
    segments = Segments(TEXT, 4, 5)
    assert len(list(islice(segments, 2))) == 2
    assert starts(list(segments))[0] == (0, True)


@pytest.mark.parametrize("per_epoch", [None, 3])
@pytest.mark.parametrize("at", [1, 3, 4, 6, 7])
def test_loader_continues_from_its_state(per_epoch: int | None, at: int) -> None:
    """In the middle of an epoch or between two; the rest of its epoch, then whole ones."""

    def endless(segments: Segments) -> list[list[tuple[int, bool]]]:
        return [starts(list(segments)) for _ in range(3)]

    whole = [s for epoch in endless(Segments(TEXT, 4, 5, per_epoch=per_epoch)) for s in epoch]
    segments = Segments(TEXT, 4, 5, per_epoch=per_epoch)
    taken = 0
    while taken < at:
        for _ in segments:
            taken += 1
            if taken == at:
                state = segments.state_dict()
                break
    resumed = Segments(TEXT, 4, 5, per_epoch=per_epoch)
    resumed.load_state_dict(state)
    rest = endless(resumed)
    assert len(rest[0]) == len(resumed) - at % len(resumed)
    assert len(rest[1]) == len(resumed)
    assert [s for epoch in rest for s in epoch][: len(whole) - at] == whole[at:]


def test_processes_share_the_streams() -> None:
    """Together they have those of one process."""

    def inputs(segments: Segments) -> Tensor:
        return torch.cat([batch.tokens for batch in segments], dim=1)

    alone = Segments(TEXT, 6, 4)
    parts = [Segments(TEXT, 2, 4, share=Share(3, process)) for process in range(3)]
    assert all(part.layout == alone.layout for part in parts)
    assert torch.equal(torch.cat([inputs(part) for part in parts]), inputs(alone))


def test_streams_of_an_evaluation_set_are_shared_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    data = PydocTopics(test_batch_size=16)
    monkeypatch.setattr(PydocTopics, "share", Share(4, 1))
    assert next(iter(data.loader("test"))).tokens.shape == (4, 64)
    monkeypatch.setattr(PydocTopics, "share", Share(3, 0))
    with pytest.raises(UserError, match="test_batch_size must be a multiple of the 3 processes"):
        data.val_dataloader()


def test_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(UserError, match="test text has 103 tokens, too few for 104 streams"):
        Segments(TEXT, 52, 1, share=Share(2, 0), name="test")
    message = "segment_length must be less than the 25 tokens of each of 4 streams .*, got 25"
    with pytest.raises(UserError, match=message):
        Segments(TEXT, 4, 25)
    assert len(Segments(TEXT, 4, 24)) == 1
