"""Getting WikiText-103 onto this machine, once; never during a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from phantomgrad_suite.data.text.vocabulary import read_lines
from phantomgrad_suite.data.text.wikitext import FILES, FOLDER, WikiText103
from phantomgrad_suite.runs.errors import MissingDataError, UserError

# Merity et al. (2017), and an <eos> for every line.
TOKENS = {"train": 103_227_021, "validation": 217_646, "test": 245_569}
_HUB = ("Salesforce/wikitext", "wikitext-103-v1")


def fetch_wikitext103(target: Path, source: Path | None = None) -> str:
    """Bring WikiText-103 to ``target/wikitext-103`` and number its words; say what was done.

    Args:
        target: the folder of all data (``paths.data``).
        source: a folder that holds the files ``wiki.{train,valid,test}.tokens``, or has them in
            ``wikitext-103``; the first of them may be missing. Without one, Hugging Face's
            ``datasets`` downloads the texts.

    Raises:
        MissingDataError: ``source`` does not hold the texts, or the download failed.
        UserError: a text has not the tokens that it should have; it was not installed.
    """
    folder = target / FOLDER
    if not all((folder / file).exists() for file in FILES.values()):
        folder.mkdir(parents=True, exist_ok=True)
        if source is None:
            _download(folder)
        else:
            _copy(_find(source), folder)
    counts = {name: _checked(folder / file, name) for name, file in _there(folder).items()}
    if "train" not in counts:
        return (
            f"WikiText103: {counts['validation']} and {counts['test']} tokens of validation and "
            f"test text in {folder}; without the training text, dataset=wikitext103_valid alone "
            "can be used"
        )
    words = WikiText103(root=str(target)).sizes()["vocabulary"]
    return f"WikiText103: {counts['train']} training tokens and {words} words in {folder}"


def count_tokens(lines: Iterable[str]) -> int:
    """Return the number of words and line ends."""
    return sum(len(line.split()) + 1 for line in lines)


def _there(folder: Path) -> dict[str, str]:
    return {name: file for name, file in FILES.items() if (folder / file).exists()}


def _checked(path: Path, name: str) -> int:
    tokens = count_tokens(read_lines(path))
    if tokens != TOKENS[name]:
        raise UserError(
            f"{path} has {tokens} tokens, the {name} text of WikiText-103 {TOKENS[name]}: delete "
            "it and fetch it again"
        )
    return tokens


def _find(source: Path) -> Path:
    for folder in (source, source / FOLDER):
        if {"validation", "test"} <= set(_there(folder)):
            return folder
    raise MissingDataError(
        f"{source} does not hold WikiText103: expected {', '.join(FILES.values())} there"
    )


def _copy(source: Path, folder: Path) -> None:
    """Check each file, and move a copy to its place in one step."""
    for name, file in _there(source).items():
        _checked(source / file, name)
        part = folder / f".{file}.part"
        shutil.copyfile(source / file, part)
        part.replace(folder / file)


def _download(folder: Path) -> None:
    from datasets import load_dataset

    try:
        texts = load_dataset(*_HUB)
    except Exception as error:
        raise MissingDataError(
            f"WikiText103 could not be downloaded ({type(error).__name__}: {error}); on a machine "
            f"without network, copy {', '.join(FILES.values())} and use `--from DIR`"
        ) from error
    for name, file in FILES.items():
        part = folder / f".{file}.part"
        with part.open("w", encoding="utf-8") as target:
            target.writelines(f"{line.rstrip()}\n" for line in texts[name]["text"])
        _checked(part, name)
        part.replace(folder / file)
