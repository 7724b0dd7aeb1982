"""The help texts that come with Python."""

import hashlib
import platform
from dataclasses import dataclass
from typing import Any

from phantomgrad_suite.data.base import Synthetic
from phantomgrad_suite.data.text.streams import Corpus, LanguageData, random_words
from phantomgrad_suite.data.text.vocabulary import encode, number_words

_HELD_OUT = {3: "validation", 7: "test"}  # of every eight topics


@dataclass(kw_only=True, eq=False)
class PydocTopics(LanguageData):
    """The help texts that come with Python (``pydoc_data.topics``), about 77,000 tokens.

    Of eight topics in alphabetical order, the fourth validates and the last one is tested. The
    texts differ between versions of Python, and so do fingerprint and results.

    Args:
        min_count: words that are rarer in the training text become ``<unk>``.
    """

    evaluation_sets = ("test", "validation")

    min_count: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_settings(1, "min_count")

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        words = len(number_words(topics()["train"], settings.get("min_count", 3)))
        return random_words(words, settings["batch_size"], settings["segment_length"])

    def read(self) -> Corpus:
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
