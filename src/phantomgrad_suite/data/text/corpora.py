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
from phantomgrad_suite.runs.errors import UserError

FOLDER = "wikitext-103"
FILES = {part: f"wiki.{part[:5]}.tokens" for part in ("train", "validation", "test")}
CHARACTERS = "wikitext103-characters"
_VOCABULARIES = {"wikitext103": 267_735, CHARACTERS: 256}
_HELD_OUT = {3: "validation", 7: "test"}  # of every eight topics
END, UNKNOWN = "<eos>", "<unk>"


@dataclass(kw_only=True, eq=False)
class WikiText103(LanguageData):
    """WikiText-103, by words (Merity et al., 2017): 103,227,021 training tokens, 267,735 words.

    ``name="wikitext103-characters"`` are the 122 articles of its validation and test texts, which
    are embedded, by characters. Of every eight articles the last one is tested, the others train.

    Encoded words are cached next to the texts. The vocabulary is that of the training lines.
    """

    root: str  # holds wikitext-103/wiki.{train,valid,test}.tokens
    name: str = "wikitext103"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.name", self.name, tuple(_VOCABULARIES))
        if self.name == CHARACTERS:
            self.evaluation_sets = ("test",)
            return
        self._files = {part: Path(self.root) / FOLDER / file for part, file in FILES.items()}
        self.evaluation_sets = ("test", "validation")
        missing = [str(path) for path in self._files.values() if not path.exists()]
        if missing:
            raise missing_data(f"WikiText-103 lacks {', '.join(missing)}", self.name)

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        vocabulary = _VOCABULARIES[settings.get("name", "wikitext103")]
        return random_words(vocabulary, settings["batch_size"], settings["segment_length"])

    @cached_property
    def corpus(self) -> Corpus:
        if self.name == CHARACTERS:
            return _corpus_of_characters()
        path = Path(self.root) / FOLDER / f"{self.name}.pt"
        *parts, words = cached(path, self._files.values(), self._encoded)
        return Corpus(
            dict(zip(FILES, parts, strict=True)),
            int((words == ord("\n")).sum()),
            digest([*parts, words]),
        )

    def facts(self) -> dict[str, Any]:
        facts = {"name": self.name, **super().facts()}
        if self.name == CHARACTERS:
            facts["reduced"] = "the articles of the validation and test texts, by characters"
        return facts

    def _encoded(self) -> list[Tensor]:
        """Return the numbers of each part, and the words, one a line, as bytes."""
        numbers = number_words(read_lines(self._files["train"]))
        parts = [encode(numbers, read_lines(file), str(file)) for file in self._files.values()]
        return [*parts, _as_bytes(numbers)]


def _corpus_of_characters() -> Corpus:
    files = [embedded_folder(FOLDER) / FOLDER / FILES[part] for part in ("validation", "test")]
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for number, article in enumerate(articles(itertools.chain(*map(read_lines, files)))):
        parts["test" if number % 8 == 7 else "train"].extend(map(spelled, article))
    numbers = number_words(parts["train"], min_count=1)
    encoded = {name: encode(numbers, lines, name) for name, lines in parts.items()}
    return Corpus(encoded, len(numbers), digest([*encoded.values(), _as_bytes(numbers)]))


def spelled(line: str) -> str:
    """Return a line with blanks between all characters; the last one of a word has its end."""
    return " ".join(c for word in line.split() for c in (*word[:-1], f"{word[-1]}</w>"))


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


def _as_bytes(words: Iterable[str]) -> Tensor:
    """Return words, one a line, as bytes."""
    text = "".join(f"{word}\n" for word in words).encode()
    return torch.from_numpy(np.frombuffer(text, np.uint8).copy())


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
