"""Checkpoints are whole, or the one before stays; what a disk has damaged is not believed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from phantomgrad_suite.checkpoint import WholeCheckpointIO
from phantomgrad_suite.checkpoint.storage import damage, newest_whole, previous_of
from phantomgrad_suite.runs.errors import UserError


def save(path: Path, epoch: int) -> Path:
    WholeCheckpointIO().save_checkpoint({"epoch": epoch, "weight": torch.arange(64)}, path)
    return path


def epoch_of(path: Path | None) -> int:
    assert path is not None
    return int(WholeCheckpointIO().load_checkpoint(path, weights_only=True)["epoch"])


def test_checkpoint_comes_back(tmp_path: Path) -> None:
    io, path = WholeCheckpointIO(), tmp_path / "new" / "last.ckpt"
    io.save_checkpoint({"epoch": 3, "weight": torch.ones(2)}, path)
    loaded = io.load_checkpoint(path, weights_only=True)
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["weight"], torch.ones(2))
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]


def test_failed_write_leaves_the_ones_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    for epoch in (2, 3):
        save(path, epoch)

    def fail(descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        save(path, 4)
    assert (epoch_of(path), epoch_of(previous_of(path))) == (3, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last.ckpt", "last.previous.ckpt"]


@pytest.mark.parametrize("links", [True, False])
def test_two_generations_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links on this disk")

    path = tmp_path / "last.ckpt"
    if not links:
        save(path, 0)  # so that there is something to link to
        monkeypatch.setattr(os, "link", refuse)
    for epoch in (1, 2, 3):
        save(path, epoch)
    assert (epoch_of(path), epoch_of(previous_of(path))) == (3, 2)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("moment", ["link", "rename to previous", "rename to last"])
def test_killed_between_any_two_steps_there_is_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    class Killed(BaseException):
        pass

    path = tmp_path / "last.ckpt"
    for epoch in (1, 2):
        save(path, epoch)
    replace, calls = Path.replace, []

    def counted(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == ("rename to previous", "rename to last").index(moment) + 1:
            raise Killed
        return replace(self, target)

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "link":
            patch.setattr(os, "link", killed)
        else:
            patch.setattr(Path, "replace", counted)
        with pytest.raises(Killed):
            save(path, 3)
    assert epoch_of(newest_whole(path)) == 2
    save(path, 3)  # what was left lying about is no hindrance
    assert (epoch_of(path), epoch_of(previous_of(path))) == (3, 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_newest_whole_one_is_chosen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "last.ckpt"
    assert newest_whole(path) is None
    for epoch in (1, 2):
        save(path, epoch)
    assert newest_whole(path) == path
    assert caplog.text == ""
    path.write_bytes(path.read_bytes()[:-7])
    assert newest_whole(path, keeper=False) == previous_of(path)
    assert path.exists()
    assert newest_whole(path) == previous_of(path)
    assert "last.ckpt is damaged (BadZipFile" in caplog.text
    assert not path.exists()
    previous_of(path).write_bytes(b"")
    assert newest_whole(path) is None
    assert "starts afresh" in caplog.text
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["last.ckpt.damaged", "last.previous.ckpt.damaged"]


@pytest.mark.parametrize("reason", [errno.EIO, errno.EACCES, errno.EMFILE])
def test_what_cannot_be_read_now_is_not_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    path = save(tmp_path / "last.ckpt", 1)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("phantomgrad_suite.checkpoint.storage.zipfile.ZipFile", fail)
    with pytest.raises(UserError, match=r"last.ckpt cannot be read now \(.*\): it is left"):
        newest_whole(path)
    assert path.exists()


@given(data=st.data())
def test_flipped_bit_is_found_or_does_no_harm(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Some bytes are padding, or names that nobody reads."""
    path = save(tmp_path_factory.mktemp("flip") / "last.ckpt", 5)
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    if damage(path) is None:
        loaded = WholeCheckpointIO().load_checkpoint(path, weights_only=True)
        assert loaded["epoch"] == 5
        assert_close(loaded["weight"], torch.arange(64), rtol=0, atol=0)


def test_flipped_bit_in_a_weight_is_found(tmp_path: Path) -> None:
    """``torch.load`` would not have noticed."""
    path = save(tmp_path / "last.ckpt", 5)
    content = path.read_bytes()
    weight = bytes(torch.arange(64).numpy().data)
    assert content.count(weight) == 1
    path.write_bytes(content.replace(weight, b"\x01" + weight[1:]))
    assert int(torch.load(path, weights_only=True)["weight"][0]) == 1
    assert "checksum" in (damage(path) or "")
