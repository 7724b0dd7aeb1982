"""The base class of data sets for language models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad_suite.data.base import DataModule, Synthetic
from phantomgrad_suite.data.text.streams import Segments, TokenBatch
from phantomgrad_suite.runs.errors import UserError


class Corpus(NamedTuple):
    """The words of each part of a text as numbers, ``(N,)``, out of ``vocabulary`` many."""

    parts: dict[str, Tensor]
    vocabulary: int
    fingerprint: str


def random_words(vocabulary: int, streams: int, length: int) -> Synthetic:
    """Return segments of random words, distributed as in natural text.

    The r-th word has a probability proportional to 1 / (r + 2.7) (Mandelbrot, 1953), which gives
    each cluster of an adaptive softmax about the work that it has with text.
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
    """The next word of a text; batches are segments of parallel streams (:class:`.Segments`).

    Args:
        batch_size: training streams of one process.
        test_batch_size: streams of an evaluation set, over all processes.
        segment_length: tokens of a segment.
        segments_per_epoch: training segments of an epoch, which continues where the previous one
            ended; ``None`` for the whole text.
    """

    batch_size: int = 16
    test_batch_size: int = 16
    segment_length: int = 64
    segments_per_epoch: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.check_settings(1, "batch_size", "test_batch_size")
        self.check_settings(1, "segment_length", "segments_per_epoch")

    def read(self) -> Corpus:
        """Return the text."""
        raise NotImplementedError

    @cached_property
    def corpus(self) -> Corpus:
        """The text, read when it is first needed."""
        return self.read()

    def sizes(self) -> dict[str, int]:
        """Return the number of different words."""
        return {"vocabulary": self.corpus.vocabulary}

    def facts(self) -> dict[str, Any]:
        """Return fingerprint, number of different words, and tokens of each part."""
        parts, vocabulary, fingerprint = self.corpus
        tokens = {name: len(part) for name, part in parts.items()}
        return {"fingerprint": f"sha256:{fingerprint}", "vocabulary": vocabulary, **tokens}

    def loader(self, part: str) -> Segments:
        """Return the segments of a part."""
        training, processes = part == "train", self.share.processes
        if not training and self.test_batch_size % processes:
            raise UserError(
                f"dataset.test_batch_size must be a multiple of the {processes} processes, "
                f"got {self.test_batch_size}"
            )
        return Segments(
            self.corpus.parts[part],
            self.batch_size if training else self.test_batch_size // processes,
            self.segment_length,
            share=self.share,
            per_epoch=self.segments_per_epoch if training else None,
            name="training" if training else part,
        )
