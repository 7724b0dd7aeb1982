"""What the texts for language models share: parts, streams, segments."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad_suite.data.base import DataModule, Synthetic
from phantomgrad_suite.data.text.streams import Segments, TokenBatch, streams_of


class Corpus(NamedTuple):
    """A text by the numbers of its words.

    Attributes:
        parts: of each part, ``(N,)``.
        vocabulary: how many words there are.
        fingerprint: a hash of words and numbers.
    """

    parts: dict[str, Tensor]
    vocabulary: int
    fingerprint: str


def random_words(vocabulary: int, streams: int, length: int) -> Synthetic:
    """Return segments of random words, the r-th with a probability like 1 / (r + 2.7)."""
    check_at_least("dataset.batch_size", streams, 1)
    check_at_least("dataset.segment_length", length, 1)

    def draw(generator: torch.Generator) -> TokenBatch:
        weights = (torch.arange(vocabulary, dtype=torch.float64) + 3.7).reciprocal()
        places = torch.rand(streams * (length + 1), generator=generator, dtype=torch.float64)
        words = torch.searchsorted(weights.cumsum(0), places * weights.sum())
        words = words.clamp_(max=vocabulary - 1).view(streams, length + 1)
        return TokenBatch(words[:, :-1], words[:, 1:], first=False)

    sizes = {"vocabulary": vocabulary}
    return Synthetic(samples=streams * length, unit="tokens", draw=draw, of_model=sizes, of_task={})


class LanguageData(DataModule):
    """The next word of a text; batches are segments of parallel streams (:class:`Segments`).

    Args:
        batch_size: training streams of one process.
        test_batch_size: streams of an evaluation set, over all processes.
        segment_length: tokens of a segment.
        segments_per_epoch: training segments of an epoch, which goes on where the last one has
            ended; ``None`` for the whole text.

    Raises:
        ValueError: a number is too small.
    """

    def __init__(
        self,
        *,
        batch_size: int = 16,
        test_batch_size: int = 16,
        segment_length: int = 64,
        segments_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        check_at_least("dataset.batch_size", batch_size, 1)
        check_at_least("dataset.test_batch_size", test_batch_size, 1)
        check_at_least("dataset.segment_length", segment_length, 1)
        if segments_per_epoch is not None:
            check_at_least("dataset.segments_per_epoch", segments_per_epoch, 1)
        self._batch_size, self._test_batch_size = batch_size, test_batch_size
        self._segment_length, self._per_epoch = segment_length, segments_per_epoch

    @abstractmethod
    def read(self) -> Corpus:
        """Return the text."""

    @cached_property
    def corpus(self) -> Corpus:
        """The text, read when it is first asked for."""
        return self.read()

    def sizes(self) -> dict[str, int]:
        """Return the number of words."""
        return {"vocabulary": self.corpus.vocabulary}

    def facts(self) -> dict[str, Any]:
        """Return fingerprint, number of words, and tokens of each part."""
        parts, vocabulary, fingerprint = self.corpus
        tokens = {name: len(part) for name, part in parts.items()}
        return {"fingerprint": f"sha256:{fingerprint}", "vocabulary": vocabulary, **tokens}

    def train_dataloader(self) -> Segments:
        """Return the segments of the training text."""
        return Segments(
            self.corpus.parts["train"],
            self._batch_size,
            self._segment_length,
            share=self.share,
            per_epoch=self._per_epoch,
        )

    def val_dataloader(self) -> list[Segments]:
        """Return the segments of each evaluation set."""
        streams = streams_of(self._test_batch_size, self.share, "dataset.test_batch_size")
        return [
            Segments(
                self.corpus.parts[name], streams, self._segment_length, share=self.share, name=name
            )
            for name in self.evaluation_sets
        ]
