"""The numbers of words."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phantomgrad_suite.runs.errors import UserError

END, UNKNOWN = "<eos>", "<unk>"


def number_words(lines: Iterable[str], min_count: int | None = None) -> dict[str, int]:
    """Return the number of each word of a training text, in increasing order.

    Every line, even a blank one, ends in ``<eos>``, number 0. The words follow by decreasing
    frequency, then by first appearance. Those rarer than ``min_count`` become ``<unk>``, and so do
    unknown words of other texts; with ``None`` only the words of this text have a number.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.split())
    counts.pop(END, None)
    if min_count is not None:
        rare = {word: n for word, n in counts.items() if n < min_count and word != UNKNOWN}
        counts[UNKNOWN] += sum(rare.values())
        counts = Counter({word: n for word, n in counts.items() if word not in rare})
    words = (END, *(word for word, _ in counts.most_common()))
    kind = dict if min_count is None else _Open
    return kind((word, number) for number, word in enumerate(words))


def encode(numbers: dict[str, int], lines: Iterable[str], source: str) -> Tensor:
    """Return the numbers of the words of the text ``source``, ``(N,)``, as 32-bit integers."""
    encoded = array("i")
    for at, line in enumerate(lines, start=1):
        try:
            encoded.extend(map(numbers.__getitem__, line.split()))
        except KeyError as error:
            raise UserError(
                f"{source}, line {at}: the training text has no word {error.args[0]!r}; do "
                "these texts belong to the same corpus?"
            ) from error
        encoded.append(numbers[END])
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
