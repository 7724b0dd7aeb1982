"""Word problems: the products of sequences of elements of a permutation group."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations

import numpy as np
from numpy.random import RandomState
from torch import Tensor

from phantomgrad.checks import check_at_least, check_choice, check_list
from phantomgrad_reasoners.puzzles import IGNORED, Draw, PuzzleData, collect, parts_of

_DRAWN = 1024  # words at a time


@dataclass(kw_only=True, eq=False)
class Words(PuzzleData):
    """Random words a_1 ... a_L over a group; the i-th target is the product a_1 ... a_i.

    Tokens: 0 padding, e + 1 for the e-th element (:func:`multiplication_table`). ``test_lengths``
    add evaluation sets ``test/length<n>`` of ``test`` longer words. The rating is the length.
    """

    group: str = "S3"
    length: int = 16
    test_lengths: tuple[int, ...] = (32, 64)
    labels: str = "all"  # or last: only the product of the whole word has a label

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_settings(2, "length")
        check_choice("dataset.group", self.group, ("S3", "A5", "S5"))
        check_choice("dataset.labels", self.labels, ("all", "last"))
        for length in check_list("dataset.test_lengths", self.test_lengths):
            check_at_least("dataset.test_lengths", length, self.length + 1)
        self.test_lengths = tuple(sorted(set(self.test_lengths)))
        longer = (f"test/length{length}" for length in self.test_lengths)
        self.evaluation_sets += tuple(longer)
        self.title, self.positions = f"Words-{self.group}-{self.length}", self.length
        self.vocabulary = len(multiplication_table(self.group)) + 1

    def make(self) -> dict[str, list[Tensor]]:
        made = super().make()
        for name, length in zip(self.evaluation_sets[2:], self.test_lengths, strict=True):
            draws = (draw._replace(parts=np.full(_DRAWN, name)) for draw in self.draws(length))
            made |= collect(draws, {name: self.test})
        return made

    def draws(self, length: int | None = None) -> Iterator[Draw]:
        """Yield random words of the training length, or of another."""
        length = length or self.length
        rng, table = RandomState([self.seed, length]), multiplication_table(self.group)
        weights = rng.randint(2**62, size=length).astype(np.uint64)
        while True:
            words = rng.randint(len(table), size=(_DRAWN, length))
            products = words.copy()
            for i in range(1, length):
                products[:, i] = table[products[:, i - 1], words[:, i]]
            targets = (products + 1).astype(np.int16)
            if self.labels == "last":
                targets[:, :-1] = IGNORED
            inputs = (words + 1).astype(np.uint8)
            parts = parts_of((inputs * weights).sum(axis=1))
            yield Draw(inputs, targets, np.full(_DRAWN, length), parts)


@cache
def multiplication_table(group: str) -> np.ndarray:
    """Return the number of the product ab of elements a and b: first apply b, then a.

    The elements are the permutations (in A5 the even ones) in alphabetical order.
    """
    elements = [
        p
        for p in permutations(range(int(group[1])))
        if group[0] == "S" or sum(a > b for a, b in combinations(p, 2)) % 2 == 0
    ]
    numbers = {element: number for number, element in enumerate(elements)}
    return np.array([[numbers[tuple(a[i] for i in b)] for b in elements] for a in elements])
