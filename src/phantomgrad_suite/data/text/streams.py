"""A text cut into parallel streams, and these into the segments of training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor

from phantomgrad_suite.data.base import Share
from phantomgrad_suite.runs.errors import UserError


class TokenBatch(NamedTuple):
    """A segment of each of several streams, ``(B, L)``, and the tokens that follow each token.

    ``first`` tells that the streams begin here, so that earlier memories must be dropped.
    """

    tokens: Tensor
    targets: Tensor
    first: bool


class Layout(NamedTuple):
    """The tokens and the segments of a stream."""

    length: int
    segments: int


class Segments:
    """A resumable loader of the segments of a text, in order.

    The text is cut into contiguous streams of ``floor(N / streams)`` tokens, and each stream into
    segments that do not overlap; the last segment is shorter. The first token of a stream is not
    predicted. In a distributed run each process has streams of its own.

    Args:
        tokens: the text, ``(N,)``.
        streams: of this process.
        segment_length: tokens of a segment.
        share: which of the processes this is.
        per_epoch: segments of an epoch, which continues where the previous one ended, and at the
            end of the text from its beginning; ``None`` for passes over the whole text.
        name: of the text, for error messages.
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
        length = len(tokens) // everywhere
        if not length:
            raise UserError(
                f"the {name} text has {len(tokens)} tokens, too few for {everywhere} streams: "
                "choose fewer"
            )
        if length <= segment_length:
            raise UserError(
                f"dataset.segment_length must be less than the {length} tokens of each of "
                f"{everywhere} streams of the {name} text, got {segment_length}"
            )
        self.name = name
        self.layout = Layout(length, segments=-(-(length - 1) // segment_length))
        self.spans_epochs = per_epoch is not None
        """Whether an epoch continues where the previous one ended."""
        rows = tokens[: everywhere * length].view(everywhere, length)
        self._rows = rows[streams * share.process : streams * (share.process + 1)]
        self._segment_length = segment_length
        self._per_epoch = per_epoch or self.layout.segments
        self._place = self._taken = self._skip = 0

    def __len__(self) -> int:
        return self._per_epoch

    def __iter__(self) -> Iterator[TokenBatch]:
        self._taken, self._skip = self._skip, 0
        if not self.spans_epochs and not self._taken:
            self._place = 0
        while self._taken < self._per_epoch:
            segment = self._segment(self._place)
            self._place = (self._place + 1) % self.layout.segments
            self._taken += 1
            yield segment

    def state_dict(self) -> dict[str, Any]:
        """Return the index of the next segment, and how many of this epoch were taken."""
        return {"place": self._place, "handed_out": self._taken}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue at the saved position."""
        self._place = state_dict["place"]
        self._skip = state_dict["handed_out"] % self._per_epoch

    def _segment(self, number: int) -> TokenBatch:
        start = number * self._segment_length
        end = min(start + self._segment_length, self.layout.length - 1)
        inputs, targets = self._rows[:, start:end], self._rows[:, start + 1 : end + 1]
        return TokenBatch(inputs.long(), targets.long(), first=number == 0)
