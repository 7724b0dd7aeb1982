"""The texts of language models: WikiText-103, Python's help texts, and the numbers of words."""

import hashlib
import itertools
import platform
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phantomgrad.checks import check_choice
from phantomgrad_suite.data.base import Synthetic, missing_data
from phantomgrad_suite.data.sources import cached, digest, embedded_folder
from phantomgrad_suite.data.text.streams import Corpus, LanguageData, random_words
from phantomgrad_suite.data.text.subwords import BytePairs
from phantomgrad_suite.runs.errors import UserError

FOLDER = "wikitext-103"
FILES = {part: f"wiki.{part[:5]}.tokens" for part in ("train", "validation", "test")}
WORDS, ARTICLES = "wikitext103", "wikitext103-articles"  # the editions of WikiText-103
_VOCABULARY = 267_735
_HELD_OUT = {3: "validation", 7: "test"}  # of every eight topics
END, UNKNOWN = "<eos>", "<unk>"


@dataclass(kw_only=True, eq=False)
class WikiText103(LanguageData):
    """WikiText-103, by words (Merity et al., 2017): 103,227,021 training tokens, 267,735 words.

    ``name="wikitext103-articles"`` are the 122 articles of its validation and test texts, which are
    embedded: of every eight articles, the last is tested and the others train. Words are split into
    ``parts`` byte pairs (:class:`BytePairs`) of the training articles. Results on it are never
    compared with those on WikiText-103.

    The vocabulary is that of the training lines. Encoded texts are cached next to the texts.
    """

    root: str  # holds wikitext-103/wiki.{train,valid,test}.tokens, or for the articles nothing
    name: str = WORDS
    parts: int = 1000  # in the vocabulary of the articles, apart from <eos>

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_settings(1, "parts")
        check_choice("dataset.name", self.name, (WORDS, ARTICLES))
        self._folder = Path(self.root) / FOLDER
        if self.name == ARTICLES:
            self._folder = embedded_folder(FOLDER) / FOLDER
            return
        self.evaluation_sets = ("test", "validation")
        missing = [str(path) for path in map(self._path, FILES) if not path.exists()]
        if missing:
            raise missing_data(f"WikiText-103 lacks {', '.join(missing)}", self.name)

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        by_parts = settings.get("name") == ARTICLES
        vocabulary = settings.get("parts", cls.parts) + 1 if by_parts else _VOCABULARY
        return random_words(vocabulary, settings["batch_size"], settings["segment_length"])

    @cached_property
    def corpus(self) -> Corpus:
        of_words = self.name == WORDS
        files = [self._path(part) for part in FILES if of_words or part != "train"]
        path = self._folder / (f"{WORDS}.pt" if of_words else f"{ARTICLES}{self.parts}.pt")
        *parts, words = cached(path, files, self._by_words if of_words else self._by_parts)
        names = FILES if of_words else ("train", "test")
        return Corpus(
            dict(zip(names, parts, strict=True)),
            int((words == ord("\n")).sum()),
            digest([*parts, words]),
        )

    def facts(self) -> dict[str, Any]:
        facts = {"name": self.name, **super().facts()}
        if self.name == ARTICLES:
            facts["reduced"] = "the articles of the validation and test texts, in byte pairs"
        return facts

    def _path(self, part: str) -> Path:
        return self._folder / FILES[part]

    def _by_words(self) -> list[Tensor]:
        """Return the numbers of each part, and the words, one a line, as bytes."""
        numbers = number_words(read_lines(self._path("train")))
        parts = [encode(numbers, read_lines(self._path(p)), str(self._path(p))) for p in FILES]
        return [*parts, _as_bytes(numbers)]

    def _by_parts(self) -> list[Tensor]:
        train, test = [], []
        both = itertools.chain(*(read_lines(self._path(part)) for part in ("validation", "test")))
        for number, article in enumerate(articles(both)):
            (test if number % 8 == 7 else train).extend(article)
        pairs = BytePairs(Counter(word for line in train for word in line.split()), self.parts)
        numbers = {part: number for number, part in enumerate((END, *pairs.parts))}
        encoded = [encode(numbers, map(pairs.spelled, lines), self.name) for lines in (train, test)]
        return [*encoded, _as_bytes(numbers)]


def _as_bytes(words: Iterable[str]) -> Tensor:
    text = "".join(f"{word}\n" for word in words).encode()
    return torch.from_numpy(np.frombuffer(text, np.uint8).copy())


def articles(lines: Iterable[str]) -> list[list[str]]:
    """Return the lines of each article of WikiText, whose first one is `` = Title = ``."""
    found: list[list[str]] = [[]]  # the first one is what precedes the first title
    for line in lines:
        if re.fullmatch(r" = [^=].* = \n", line):
            found.append([])
        found[-1].append(line)
    return found[1:]


@dataclass(kw_only=True, eq=False)
class PydocTopics(LanguageData):
    """The help texts that come with Python (``pydoc_data.topics``), about 77,000 tokens.

    Of eight topics in alphabetical order, the fourth validates and the last one is tested. The
    texts differ between versions of Python, and so do fingerprint and results.
    """

    evaluation_sets = ("test", "validation")

    min_count: int = 3  # words that are rarer in the training text become <unk>

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_settings(1, "min_count")

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        words = len(number_words(topics()["train"], settings.get("min_count", 3)))
        return random_words(words, settings["batch_size"], settings["segment_length"])

    @cached_property
    def corpus(self) -> Corpus:
        parts = topics()
        words = number_words(parts["train"], self.min_count)
        letters = hashlib.sha256("\n".join(map("\n".join, parts.values())).encode())
        numbers = {name: encode(words, lines, name) for name, lines in parts.items()}
        return Corpus(numbers, len(words), letters.hexdigest())

    def facts(self) -> dict[str, Any]:
        version = ".".join(platform.python_version_tuple()[:2])
        return {"name": "pydoc-topics", "python": version, **super().facts()}


def topics() -> dict[str, list[str]]:
    """Return the lines of each part of Python's help texts."""
    from pydoc_data.topics import topics as texts

    parts: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for number, name in enumerate(sorted(texts)):
        parts[_HELD_OUT.get(number % 8, "train")] += texts[name].splitlines()
    return parts


def number_words(lines: Iterable[str], min_count: int | None = None) -> dict[str, int]:
    """Return the number of each word of a training text: first ``<eos>``, then the most frequent.

    Words rarer than ``min_count`` become ``<unk>``, and so do unknown words of other texts; with
    ``None`` only the words of this text have a number.
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
        byte = f"byte {error.object[error.start]:#04x}: {error.reason}"
        raise missing_data(f"{path} is not UTF-8 text ({byte})", "WikiText103") from error
