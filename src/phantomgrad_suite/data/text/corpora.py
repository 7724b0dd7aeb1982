"""The texts of language models, WikiText-103 by words or characters, and the numbers of words."""

import itertools
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
    numbers = number_words(parts["train"], unknown=True)
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


def _as_bytes(words: Iterable[str]) -> Tensor:
    """Return words, one a line, as bytes."""
    text = "".join(f"{word}\n" for word in words).encode()
    return torch.from_numpy(np.frombuffer(text, np.uint8).copy())


def number_words(lines: Iterable[str], *, unknown: bool = False) -> dict[str, int]:
    """Return the number of each word of a training text: first ``<eos>``, then the most frequent.

    With ``unknown``, words of other texts may be unknown, and have the number of ``<unk>``.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.split())
    counts.pop(END, None)
    if unknown:
        counts[UNKNOWN] += 0
    words = (END, *(word for word, _ in counts.most_common()))
    return (_Open if unknown else dict)((word, number) for number, word in enumerate(words))


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
