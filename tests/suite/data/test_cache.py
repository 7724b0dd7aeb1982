"""The cache of tensors: made once, and again when it is damaged or made from other data."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from phantomgrad_suite.data.cache import cached


@pytest.fixture
def made(tmp_path: Path) -> list[int]:
    """Counts how often the tensors are made."""
    return []


def load(folder: Path, made: list[int], source: str = "a") -> list[Tensor]:
    def make() -> list[Tensor]:
        made.append(1)
        return [torch.arange(1000), torch.zeros(3, dtype=torch.uint8)]

    return cached(folder / "kept.pt", source, make)


def test_tensors_are_made_once(tmp_path: Path, made: list[int], caplog: Any) -> None:
    first, second = load(tmp_path, made), load(tmp_path, made)
    assert all(map(torch.equal, first, second))
    assert len(made) == 1
    assert caplog.text == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"kept.pt", ".kept.pt.lock"}


@pytest.mark.parametrize("damage", ["a bit", "the end", "source"])
def test_damaged_or_outdated_file_is_made_again(
    tmp_path: Path, made: list[int], caplog: Any, damage: str
) -> None:
    load(tmp_path, made, source="b" if damage == "source" else "a")
    path = tmp_path / "kept.pt"
    content = bytearray(path.read_bytes())
    if damage == "a bit":
        content[len(content) // 2] ^= 1
    elif damage == "the end":
        del content[len(content) // 2 :]
    path.write_bytes(content)
    assert load(tmp_path, made)[0].sum() == 499500
    assert f"{path} is damaged or made from other data" in caplog.text
    caplog.clear()
    load(tmp_path, made)
    assert len(made) == 2
    assert caplog.text == ""


def test_nothing_is_written_into_a_read_only_folder(
    tmp_path: Path, made: list[int], caplog: Any
) -> None:
    """Not even by root, for whom the file system makes an exception."""
    tmp_path.chmod(0o555)
    assert len(load(tmp_path, made)) == 2
    tmp_path.chmod(0o755)
    assert "could not be written ([Errno 13] the folder is read-only" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_a_warning(
    tmp_path: Path, made: list[int], caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("phantomgrad_suite.data.cache.torch.save", full)
    assert len(load(tmp_path, made)) == 2
    assert "could not be written" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] in ([], [".kept.pt.lock"])


def _slowly(folder: Path, barrier: Any) -> None:
    def make() -> list[Tensor]:
        (folder / f"made-{multiprocessing.current_process().pid}").touch()
        return [torch.ones(3)]

    barrier.wait(60)
    cached(folder / "kept.pt", "a", make)


def test_parallel_processes_make_them_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    barrier = context.Barrier(2)
    processes = [context.Process(target=_slowly, args=(tmp_path, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list(tmp_path.glob("made-*"))) == 1
