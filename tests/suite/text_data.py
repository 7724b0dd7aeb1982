"""Small texts in the place of WikiText-103."""

import random
from pathlib import Path

import pytest

WORDS = {"train": 3000, "valid": 1200, "test": 600}


def write_texts(folder: Path) -> None:
    """Write the three token files, of a hundred words with frequencies like those of a language."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [f"w{i}" for i in range(100)]
    for name, size in WORDS.items():
        generator = random.Random(name)
        text = words + generator.choices(words, [1 / (i + 1) for i in range(100)], k=size)
        lines = [" ".join(text[i : i + 15]) for i in range(0, len(text), 15)]
        (folder / f"wiki.{name}.tokens").write_text(" \n \n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def text_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds ``wikitext-103`` with small texts."""
    root = tmp_path_factory.mktemp("texts")
    write_texts(root / "wikitext-103")
    return root
