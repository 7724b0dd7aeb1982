"""Byte-pair encoding: words as sequences of frequent parts (Sennrich et al., 2016)."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

Pair = tuple[str, str]
_END = "</w>"  # after the last letter of a word


class BytePairs:
    """The parts of words that ``counts``, the frequencies of words in a text, give.

    At first, every letter is a part, and so is every letter at the end of a word. Again and again
    the most frequent pair of neighbours becomes a part, until there are ``size`` parts; of equally
    frequent pairs, the last one in alphabetical order. Letters that ``counts`` lacks are dropped.
    """

    def __init__(self, counts: Mapping[str, int], size: int) -> None:
        self._spelled = {word: _letters(word) for word in counts}
        alphabet = {letter for letters in self._spelled.values() for letter in letters}
        self.parts = sorted(alphabet)
        self._merges: list[Pair] = []
        totals: Counter[Pair] = Counter()
        places: defaultdict[Pair, set[str]] = defaultdict(set)

        def count(word: str, sign: int) -> None:
            for pair in _pairs(self._spelled[word]):
                totals[pair] += sign * counts[word]
                places[pair].add(word)

        for word in counts:
            count(word, 1)
        while len(self.parts) < size and totals:
            best = max(totals, key=lambda pair: (totals[pair], pair))
            for word in places.pop(best):
                count(word, -1)
                self._spelled[word] = _merged(self._spelled[word], best)
                count(word, 1)
            del totals[best]
            self._merges.append(best)
            self.parts.append("".join(best))

    def spelled(self, line: str) -> str:
        """Return a line with blanks between the parts of its words, and between these."""
        return " ".join(part for word in line.split() for part in self.split(word))

    def split(self, word: str) -> list[str]:
        """Return the parts of a word, known or not."""
        if word not in self._spelled:
            known = set(self.parts)
            parts = [letter for letter in _letters(word) if letter in known]
            for pair in self._merges:
                parts = _merged(parts, pair)
            self._spelled[word] = parts
        return self._spelled[word]


def _letters(word: str) -> list[str]:
    return [*word[:-1], word[-1] + _END]


def _pairs(parts: list[str]) -> Iterable[Pair]:
    return itertools.pairwise(parts)


def _merged(parts: list[str], pair: Pair) -> list[str]:
    """Return ``parts`` with each occurrence of ``pair`` joined, from left to right."""
    joined: list[str] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined
