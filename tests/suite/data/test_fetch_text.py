"""WikiText-103 is fetched whole, from a folder or by the hub's library, or not at all."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from graph_data import REPOSITORY
from text_data import write_texts

from phantomgrad_suite.data import WikiText103
from phantomgrad_suite.data.text import fetch as fetch_text
from phantomgrad_suite.data.text.fetch import count_tokens, fetch_wikitext103
from phantomgrad_suite.data.text.vocabulary import read_lines
from phantomgrad_suite.runs.errors import MissingDataError, UserError

FILES = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small texts, whose sizes are taken for the true ones."""
    folder = tmp_path / "source"
    write_texts(folder)
    sizes = [count_tokens(read_lines(folder / file)) for file in FILES]
    monkeypatch.setattr(
        fetch_text, "TOKENS", dict(zip(("train", "validation", "test"), sizes, strict=True))
    )
    return folder


def hub(monkeypatch: pytest.MonkeyPatch, source: Path) -> list[tuple[str, ...]]:
    """Put the library's loader in front of ``source``; return what it is asked for."""
    asked: list[tuple[str, ...]] = []

    def load_dataset(*names: str) -> dict[str, dict[str, list[str]]]:
        asked.append(names)
        parts = zip(("train", "validation", "test"), FILES, strict=True)
        # As the hub has them: a row for each line, blank ones without their white space.
        return {
            part: {"text": [s if s.strip() else "" for s in read_lines(source / file)]}
            for part, file in parts
        }

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_texts_come_from_a_folder(source: Path, tmp_path: Path) -> None:
    said = fetch_wikitext103(tmp_path / "data", source)
    assert said.endswith(f"101 words in {tmp_path / 'data' / 'wikitext-103'}")
    for file in FILES:
        copy = tmp_path / "data" / "wikitext-103" / file
        assert copy.read_bytes() == (source / file).read_bytes()
    assert (tmp_path / "data/wikitext-103/wikitext103.pt").exists()


def test_folder_may_be_the_one_above(source: Path, tmp_path: Path) -> None:
    source.rename(tmp_path / "wikitext-103")
    assert "101 words" in fetch_wikitext103(tmp_path / "data", tmp_path)


def test_training_text_may_be_missing(source: Path, tmp_path: Path) -> None:
    (source / FILES[0]).unlink()
    said = fetch_wikitext103(tmp_path / "data", source)
    assert "without the training text, dataset=wikitext103_valid alone can be used" in said
    WikiText103(root=str(tmp_path / "data"), name="wikitext103-valid").sizes()


def test_texts_come_from_the_hub(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tokens in the same lines, and so the same numbers, as from the files."""
    asked = hub(monkeypatch, source)
    fetch_wikitext103(tmp_path / "hub")
    fetch_wikitext103(tmp_path / "files", source)
    assert asked == [("Salesforce/wikitext", "wikitext-103-v1")]
    a, b = (WikiText103(root=str(tmp_path / name)).facts() for name in ("hub", "files"))
    assert a == b
    fetch_wikitext103(tmp_path / "hub")  # is there already
    assert len(asked) == 1


def test_failed_download_says_what_else_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_dataset(*_: str) -> None:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(MissingDataError, match=r"ConnectionError: no route.* use `--from DIR`"):
        fetch_wikitext103(tmp_path)


def test_text_with_other_tokens_is_not_installed(source: Path, tmp_path: Path) -> None:
    with (source / FILES[2]).open("a") as file:
        file.write("more\n")
    with pytest.raises(UserError, match=r"wiki.test.tokens has \d+ tokens, the test text of"):
        fetch_wikitext103(tmp_path / "data", source)
    assert not (tmp_path / "data" / "wikitext-103" / FILES[2]).exists()


def test_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"does not hold WikiText103: expected wiki\.train"):
        fetch_wikitext103(tmp_path / "data", tmp_path)


@pytest.mark.parametrize("name", ["WikiText103", "WikiText103-valid", "wikitext103_valid"])
def test_script_knows_the_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is written, or as its configuration is."""
    script = REPOSITORY / "scripts" / "fetch_data.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), name, "--from", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(str(script), run_name="__main__")
    assert "does not hold WikiText103" in capsys.readouterr().err
