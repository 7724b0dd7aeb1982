"""WikiText-103, and its validation text as a small corpus of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phantomgrad.checks import check_choice, check_rate
from phantomgrad_suite.data.base import Synthetic, missing_data
from phantomgrad_suite.data.sources import cached, digest
from phantomgrad_suite.data.text.streams import Corpus, LanguageData, random_words
from phantomgrad_suite.data.text.vocabulary import encode, number_words, read_lines
from phantomgrad_suite.runs.errors import UserError

FOLDER = "wikitext-103"
FILES = {part: f"wiki.{part[:5]}.tokens" for part in ("train", "validation", "test")}
_EDITIONS = {
    "wikitext103": FILES,
    "wikitext103-valid": {"train": FILES["validation"], "test": FILES["test"]},
}
_WORDS = {"wikitext103": 267_735, "wikitext103-valid": 18_891}


@dataclass(kw_only=True, eq=False)
class WikiText103(LanguageData):
    """WikiText-103, by words (Merity et al., 2017): 103,227,021 training tokens, 267,735 words.

    ``name="wikitext103-valid"`` trains on the validation text and tests on the test text, where
    words that the former lacks become ``<unk>``. Results on it are never compared with those on
    WikiText-103.

    Args:
        root: the folder that holds ``wikitext-103/wiki.{train,valid,test}.tokens``; the encoded
            texts are cached next to them.
        validation_share: share of the lines of ``"wikitext103-valid"``, at its end, that validate
            instead of training. The vocabulary is that of the remaining lines.
    """

    root: str
    name: str = "wikitext103"
    validation_share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        name, share = self.name, self.validation_share
        check_choice("dataset.name", name, tuple(_EDITIONS))
        check_rate("dataset.validation_share", share)
        if share and "validation" in _EDITIONS[name]:
            raise UserError(
                f"dataset.validation_share must be 0 for {name}, which has a validation text, "
                f"got {share}"
            )
        self._folder = Path(self.root) / FOLDER
        self._files = {part: self._folder / file for part, file in _EDITIONS[name].items()}
        held_out = share or "validation" in self._files
        self._parts = ("train", "validation", "test") if held_out else ("train", "test")
        self.evaluation_sets = self._parts[:0:-1]
        missing = [str(path) for path in self._files.values() if not path.exists()]
        if missing:
            raise missing_data(f"WikiText-103 lacks {', '.join(missing)}", name)

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        words = _WORDS[settings.get("name", "wikitext103")]
        return random_words(words, settings["batch_size"], settings["segment_length"])

    def read(self) -> Corpus:
        share = f"-{self.validation_share:g}" if self.validation_share else ""
        path = self._folder / f"{self.name}{share}.pt"
        *parts, words = cached(path, self._files.values(), self._encoded)
        return Corpus(
            dict(zip(self._parts, parts, strict=True)),
            int((words == ord("\n")).sum()),
            digest([*parts, words]),
        )

    def facts(self) -> dict[str, Any]:
        facts = {"name": self.name, **super().facts()}
        if self.name == "wikitext103-valid":
            share = self.validation_share
            rest = f", its last {share:.4g} held out" if share else ""
            facts["reduced"] = f"trained on the validation text{rest}"
        return facts

    def _encoded(self) -> list[Tensor]:
        """Return the numbers of each part, and the words, one a line, as bytes."""
        min_count = None if self.name == "wikitext103" else 1
        numbers = number_words(self._lines("train"), min_count)
        parts = [
            encode(numbers, self._lines(part), str(self._files.get(part, self._files["train"])))
            for part in self._parts
        ]
        words = "".join(f"{word}\n" for word in numbers).encode()
        return [*parts, torch.from_numpy(np.frombuffer(words, np.uint8).copy())]

    def _lines(self, part: str) -> Iterable[str]:
        if not self.validation_share or part == "test":
            return read_lines(self._files[part])
        lines = list(read_lines(self._files["train"]))
        kept = round((1 - self.validation_share) * len(lines))
        return lines[:kept] if part == "train" else lines[kept:]
