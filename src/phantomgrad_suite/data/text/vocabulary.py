"""Words and their numbers."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phantomgrad_suite.runs.errors import UserError

END, UNKNOWN = "<eos>", "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """The words of a training text; a word's number is its place.

    Lines are split at white space, and each ends in ``<eos>``, the blank ones too. That is number
    0; the words follow by decreasing frequency, and those of equal frequency by first appearance.

    Args:
        words: all of them.
        is_open: whether a word that is not among them becomes ``<unk>``, or is an error.
    """

    words: tuple[str, ...]
    is_open: bool = False

    @classmethod
    def of(cls, lines: Iterable[str], min_count: int | None = None) -> Vocabulary:
        """Return the vocabulary of a text.

        Args:
            lines: of the training text.
            min_count: rarer words become ``<unk>``, and so do those of other texts that this one
                lacks; ``None`` for a vocabulary of exactly these words.
        """
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(line.split())
        counts.pop(END, None)
        if min_count is not None:
            rare = {word: n for word, n in counts.items() if n < min_count and word != UNKNOWN}
            counts[UNKNOWN] += sum(rare.values())
            counts = Counter({word: n for word, n in counts.items() if word not in rare})
        return cls((END, *(word for word, _ in counts.most_common())), min_count is not None)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, lines: Iterable[str], source: str) -> Tensor:
        """Return the numbers of a text, ``(N,)``, as 32-bit integers.

        Args:
            lines: of the text.
            source: where it is from, for what goes wrong.

        Raises:
            UserError: it holds a word that is not in the vocabulary, which is not open.
        """
        numbers = array("i")
        for at, line in enumerate(lines, start=1):
            try:
                numbers.extend(map(self._numbers.__getitem__, line.split()))
            except KeyError as error:
                raise UserError(
                    f"{source}, line {at}: the training text has no word {error.args[0]!r}; are "
                    "these texts of one corpus?"
                ) from error
            numbers.append(0)
        return torch.from_numpy(np.array(numbers, dtype=np.int32))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        numbers = {word: number for number, word in enumerate(self.words)}
        return _Open(numbers) if self.is_open else numbers


class _Open(dict[str, int]):
    """Numbers of words, that of ``<unk>`` for all others."""

    def __missing__(self, word: str) -> int:
        return self[UNKNOWN]


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file.

    Raises:
        UserError: it is not UTF-8.
    """
    try:
        with path.open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is no text in UTF-8 (byte {error.object[error.start]:#04x}: {error.reason}): "
            "delete it and fetch it again"
        ) from error
