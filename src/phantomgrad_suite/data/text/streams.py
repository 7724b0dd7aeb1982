"""The data sets of language models: texts cut into parallel streams, and these into segments."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset, DistributedSampler

from phantomgrad.checks import check_at_least
from phantomgrad_suite.checkpoint.loaders import ResumableLoader
from phantomgrad_suite.data.base import DataModule, Share, Synthetic
from phantomgrad_suite.runs.errors import UserError


class TokenBatch(NamedTuple):
    """A segment of each of several streams, ``(B, L)``, and the tokens that follow each token."""

    tokens: Tensor
    targets: Tensor
    first: bool  # the streams begin here, so that earlier memories must be dropped


class Segments(Dataset[TokenBatch]):
    """A text, ``(N,)``, cut into ``streams`` contiguous streams of ``length`` tokens for a process.

    Each stream is cut into segments of ``segment_length`` tokens, the last of which is shorter. In
    a distributed run each process has streams of its own. ``name`` is that of the text, for errors.
    """

    def __init__(
        self, tokens: Tensor, streams: int, segment_length: int, share: Share, name: str
    ) -> None:
        everywhere = streams * share.processes
        self.length = len(tokens) // everywhere
        if self.length <= segment_length:
            size = "batch_size" if name == "training" else "test_batch_size"
            raise UserError(
                f"the {name} text has {self.length} tokens for each of {everywhere} streams, too "
                f"few for a segment of {segment_length}: lower dataset.{size} or segment_length"
            )
        rows = tokens[: everywhere * self.length].view(everywhere, self.length)
        self._rows = rows[streams * share.process : streams * (share.process + 1)]
        self._segment_length = segment_length

    def __len__(self) -> int:
        return -(-(self.length - 1) // self._segment_length)

    def __getitem__(self, number: int) -> TokenBatch:
        start = number * self._segment_length
        end = min(start + self._segment_length, self.length - 1)
        inputs, targets = self._rows[:, start:end], self._rows[:, start + 1 : end + 1]
        return TokenBatch(inputs.long(), targets.long(), first=number == 0)


class InOrder(DistributedSampler[Any]):
    """The same ``per_epoch`` indices in every process; an epoch continues the previous one.

    (Lightning sets the epoch of a ``DistributedSampler``, and does not replace it.)
    """

    def __init__(self, data: Segments, per_epoch: int) -> None:
        super().__init__(data, num_replicas=1, rank=0)
        self._size, self._per_epoch = len(data), per_epoch

    def __len__(self) -> int:
        return self._per_epoch

    def __iter__(self) -> Iterator[int]:
        first = self.epoch * self._per_epoch
        return ((first + i) % self._size for i in range(self._per_epoch))


class Corpus(NamedTuple):
    """The words of each part of a text as numbers, ``(N,)``, out of ``vocabulary`` many."""

    parts: dict[str, Tensor]
    vocabulary: int
    fingerprint: str


def random_words(vocabulary: int, streams: int, length: int) -> Synthetic:
    """Return segments of random words, the r-th as probable as 1 / (r + 2.7) (Mandelbrot, 1953).

    This gives each cluster of an adaptive softmax about the work that it has with text.
    """
    check_at_least("dataset.batch_size", streams, 1)
    check_at_least("dataset.segment_length", length, 1)

    def draw(generator: torch.Generator) -> TokenBatch:
        weights = (torch.arange(vocabulary, dtype=torch.float64) + 3.7).reciprocal()
        places = torch.rand(streams * (length + 1), generator=generator, dtype=torch.float64)
        words = torch.searchsorted(weights.cumsum(0), places * weights.sum())
        words = words.clamp_(max=vocabulary - 1).view(streams, length + 1)
        return TokenBatch(words[:, :-1], words[:, 1:], first=False)

    return Synthetic(
        samples=streams * length,
        unit="tokens",
        draw=draw,
        sizes=lambda: {"vocabulary": vocabulary},
    )


@dataclass(kw_only=True, eq=False)
class LanguageData(DataModule):
    """The next word of a text; batches are segments of parallel streams (:class:`Segments`)."""

    batch_size: int = 16  # training streams of one process
    test_batch_size: int = 16  # streams of an evaluation set, over all processes
    segment_length: int = 64
    segments_per_epoch: int | None = None  # of the training text; None for the whole of it

    def __post_init__(self) -> None:
        super().__init__()
        sizes = ("batch_size", "test_batch_size", "segment_length", "segments_per_epoch")
        self.check_settings(1, *sizes)

    @cached_property
    def corpus(self) -> Corpus:
        raise NotImplementedError

    def sizes(self) -> dict[str, int]:
        return {"vocabulary": self.corpus.vocabulary}

    def facts(self) -> dict[str, Any]:
        parts, vocabulary, fingerprint = self.corpus
        tokens = {name: len(part) for name, part in parts.items()}
        return {"fingerprint": f"sha256:{fingerprint}", "vocabulary": vocabulary, **tokens}

    def loader(self, part: str) -> ResumableLoader:
        training, share, streams = part == "train", self.share, self.batch_size
        if not training:
            streams, rest = divmod(self.test_batch_size, share.processes)
            if rest:
                raise UserError(
                    f"dataset.test_batch_size must be a multiple of the {share.processes} "
                    f"processes, got {self.test_batch_size}"
                )
        name = "training" if training else part
        text = Segments(self.corpus.parts[part], streams, self.segment_length, share, name)
        per_epoch = (training and self.segments_per_epoch) or len(text)
        return ResumableLoader(text, batch_size=None, sampler=InOrder(text, per_epoch))
