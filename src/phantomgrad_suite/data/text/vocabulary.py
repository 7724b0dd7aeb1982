"""The numbers of words."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phantomgrad_suite.runs.errors import UserError

END, UNKNOWN = "<eos>", "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """The words of a training text; the number of a word is its index.

    Every line, even a blank one, ends in ``<eos>``, number 0. The words follow by decreasing
    frequency, then by first appearance. If it is open, unknown words become ``<unk>``.
    """

    words: tuple[str, ...]
    is_open: bool = False

    @classmethod
    def of(cls, lines: Iterable[str], min_count: int | None = None) -> Vocabulary:
        """Return the vocabulary of a training text.

        Words rarer than ``min_count`` become ``<unk>``, and so do unknown words of other texts;
        with ``None`` it consists of exactly the words of the text.
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
        """Return the numbers of the text ``source``, ``(N,)``, as 32-bit integers."""
        kind = _Open if self.is_open else dict
        numbers = kind((word, number) for number, word in enumerate(self.words))
        encoded = array("i")
        for at, line in enumerate(lines, start=1):
            try:
                encoded.extend(map(numbers.__getitem__, line.split()))
            except KeyError as error:
                raise UserError(
                    f"{source}, line {at}: the training text has no word {error.args[0]!r}; do "
                    "these texts belong to the same corpus?"
                ) from error
            encoded.append(0)
        return torch.from_numpy(np.array(encoded, dtype=np.int32))


class _Open(dict[str, int]):
    """The numbers of words; all others have that of ``<unk>``."""

    def __missing__(self, word: str) -> int:
        return self[UNKNOWN]


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, which must be UTF-8."""
    try:
        with path.open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x}: {error.reason}): "
            "delete it and fetch it again"
        ) from error
