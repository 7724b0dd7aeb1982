"""A text cut into parallel streams, and these into the segments of training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.runs.errors import UserError


class TokenBatch(NamedTuple):
    """A segment of some streams.

    Attributes:
        tokens: ``(B, L)``.
        targets: the tokens that follow them, ``(B, L)``.
        first: whether it is the first one of its streams: what was remembered ends here.
    """

    tokens: Tensor
    targets: Tensor
    first: bool


class Layout(NamedTuple):
    """How many streams share a text; see :func:`layout`.

    Attributes:
        length: tokens of a stream.
        dropped: tokens at the end of the text that no stream holds.
        segments: of a stream.
        predicted: tokens in all; the first one of each stream is not predicted.
        last: length of the last segment.
    """

    length: int
    dropped: int
    segments: int
    predicted: int
    last: int


def layout(tokens: int, streams: int, segment_length: int) -> Layout:
    """Return how a text of so many ``tokens`` is cut.

    The streams are contiguous and equally long, ``floor(tokens / streams)``; segments do not
    overlap, and the last one is shorter.
    """
    length = tokens // streams
    targets = length - 1
    segments = -(-targets // segment_length)
    return Layout(
        length=length,
        dropped=tokens - streams * length,
        segments=segments,
        predicted=streams * targets,
        last=targets - (segments - 1) * segment_length,
    )


class Segments:
    """A loader of the segments of a text, in order; it knows its place, and a checkpoint keeps it.

    In a distributed run each process has streams of its own, all equally long.

    Args:
        tokens: the text, ``(N,)``.
        streams: of this process.
        segment_length: tokens of a segment; the last one of the text may be shorter.
        share: of how many processes this is which.
        per_epoch: segments of an epoch, which goes on where the one before has ended, and behind
            the end of the text again at its beginning; ``None`` for passes over the whole text.
        name: of the text, for what goes wrong.

    Raises:
        UserError: the text is too short.
    """

    def __init__(
        self,
        tokens: Tensor,
        streams: int,
        segment_length: int,
        *,
        share: Share = Share(),  # noqa: B008
        per_epoch: int | None = None,
        name: str = "training",
    ) -> None:
        everywhere = streams * share.processes
        if len(tokens) < everywhere:
            raise UserError(
                f"the {name} text has {len(tokens)} tokens, too few for {everywhere} streams: "
                "choose fewer"
            )
        self.name = name
        self.layout = layout(len(tokens), everywhere, segment_length)
        if self.layout.length <= segment_length:
            raise UserError(
                f"dataset.segment_length must be less than the {self.layout.length} tokens of each "
                f"of {everywhere} streams of the {name} text, got {segment_length}"
            )
        rows = tokens[: everywhere * self.layout.length].view(everywhere, -1)
        self._rows = rows[streams * share.process : streams * (share.process + 1)]
        self._segment_length = segment_length
        self._endless = per_epoch is not None
        self._per_epoch = per_epoch or self.layout.segments
        self._place = self._handed_out = self._skip = 0

    def __len__(self) -> int:
        return self._per_epoch

    @property
    def spans_epochs(self) -> bool:
        """Whether an epoch goes on where the one before has ended."""
        return self._endless

    def __iter__(self) -> Iterator[TokenBatch]:
        self._handed_out, self._skip = self._skip, 0
        if not self._endless and not self._handed_out:
            self._place = 0
        while self._handed_out < self._per_epoch:
            segment = self._segment(self._place)
            self._place = (self._place + 1) % self.layout.segments
            self._handed_out += 1
            yield segment

    def state_dict(self) -> dict[str, Any]:
        """Return the next segment, and how many of this epoch were handed out."""
        return {"place": self._place, "handed_out": self._handed_out}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a checkpoint was made."""
        self._place = state_dict["place"]
        self._skip = state_dict["handed_out"] % self._per_epoch

    def _segment(self, number: int) -> TokenBatch:
        start = number * self._segment_length
        end = min(start + self._segment_length, self.layout.length - 1)
        return TokenBatch(
            self._rows[:, start:end].long(),
            self._rows[:, start + 1 : end + 1].long(),
            first=number == 0,
        )


def streams_of(total: int, share: Share, name: str) -> int:
    """Return the streams of each process.

    Raises:
        UserError: they cannot be shared out equally.
    """
    check_at_least(name, total, 1)
    if total % share.processes:
        raise UserError(
            f"{name} must be a multiple of the {share.processes} processes, got {total}"
        )
    return total // share.processes
