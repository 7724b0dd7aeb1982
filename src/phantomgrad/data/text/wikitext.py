"""WikiText-103, and its validation text as a small corpus of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phantomgrad.data.base import Synthetic
from phantomgrad.data.cache import cached, digest
from phantomgrad.data.text.base import Corpus, LanguageData, random_words
from phantomgrad.data.text.vocabulary import Vocabulary, read_lines
from phantomgrad.errors import MissingDataError, UserError

FOLDER = "wikitext-103"
FILES = {
    name: f"wiki.{file}.tokens"
    for name, file in (("train", "train"), ("validation", "valid"), ("test", "test"))
}
_WORDS = {"wikitext103": 267_735, "wikitext103-valid": 18_891}
_PARTS = {
    "wikitext103": FILES,
    "wikitext103-valid": {"train": FILES["validation"], "test": FILES["test"]},
}


class WikiText103(LanguageData):
    """WikiText-103, by words (Merity et al., 2017): 103,227,021 training tokens, 267,735 words.

    ``name`` may also be ``"wikitext103-valid"``: the validation text trains, for the true test
    text, whose words that the former lacks become ``<unk>``. Results on it are called so, and
    never compared with those of WikiText-103.

    Args:
        root: the folder that holds ``wikitext-103/wiki.{train,valid,test}.tokens``; the numbers of
            their words are kept in a file beside them.
        name: ``"wikitext103"`` or ``"wikitext103-valid"``.
        options: see :class:`LanguageData`.

    Raises:
        MissingDataError: the texts are not there.
        UserError: ``name`` is another; or, when they are read, they are no texts of one corpus.
        ValueError: a number is too small.
    """

    def __init__(self, *, root: str, name: str = "wikitext103", **options: Any) -> None:
        super().__init__(**options)
        if name not in _PARTS:
            raise UserError(f"dataset.name must be one of {', '.join(_PARTS)}, got {name!r}")
        self._name, self._folder = name, Path(root) / FOLDER
        self._files = {part: self._folder / file for part, file in _PARTS[name].items()}
        self.evaluation_sets = tuple(n for n in ("test", "validation") if n in self._files)
        missing = [str(path) for path in self._files.values() if not path.exists()]
        if missing:
            raise MissingDataError(
                f"WikiText-103 lacks {', '.join(missing)}: fetch it with `python "
                "scripts/fetch_data.py WikiText103` (or, without network, add `--from DIR`), or "
                "set dataset.root"
            )

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        """Return random words, as many different ones as the text has, by a law like theirs.

        The r-th word has a probability in proportion to 1 / (r + 2.7) (Mandelbrot, 1953), which
        gives each cluster of an adaptive softmax about the work that it has with text.
        """
        words = _WORDS[settings.get("name", "wikitext103")]
        return random_words(words, settings["batch_size"], settings["segment_length"])

    def read(self) -> Corpus:
        """Return the texts, from the file beside them where it is of these."""
        stats = {name: path.stat() for name, path in self._files.items()}
        source = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats.items()]
        kept = self._folder / f"{self._name}.pt"
        *parts, words = cached(kept, "\n".join(source), self._encoded)
        return Corpus(
            dict(zip(self._files, parts, strict=True)),
            int((words == ord("\n")).sum()),
            digest([*parts, words]),
        )

    def facts(self) -> dict[str, Any]:
        """Return name, fingerprint and sizes; and that it is not the whole, if so."""
        facts = {"name": self._name, **super().facts()}
        if self._name == "wikitext103-valid":
            facts["reduced"] = "trained on the validation text"
        return facts

    def _encoded(self) -> list[Tensor]:
        """Return the numbers of each part, and the words, one a line, as bytes."""
        min_count = None if self._name == "wikitext103" else 1
        vocabulary = Vocabulary.of(read_lines(self._files["train"]), min_count)
        parts = [vocabulary.encode(read_lines(path), str(path)) for path in self._files.values()]
        words = "".join(f"{word}\n" for word in vocabulary.words).encode()
        return [*parts, torch.from_numpy(np.frombuffer(words, np.uint8).copy())]
