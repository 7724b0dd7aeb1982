"""Checkpoints are complete, or the one before stays; damaged ones are detected."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from phantomgrad_suite.checkpoint.storage import (
    PARTS,
    WholeCheckpointIO,
    damage,
    load_last,
    previous_of,
)
from phantomgrad_suite.runs.errors import UserError


def save(path, epoch):
    parts = {name: [] for name in PARTS}
    content = {**parts, "epoch": epoch, "state_dict": {"weight": torch.arange(64)}}
    WholeCheckpointIO().save_checkpoint(content, path)
    return path


def newest_whole(path, *, tidy=True):
    model = nn.Module()
    model.register_buffer("weight", torch.zeros(64, dtype=torch.int64))
    return load_last(path, model, tidy=tidy)


def epoch_of(path):
    assert path is not None
    return int(WholeCheckpointIO().load_checkpoint(path, weights_only=True)["epoch"])


def test_two_generations_are_kept(tmp_path):
    path = tmp_path / "new" / "last.ckpt"
    for epoch in (1, 2, 3):
        save(path, epoch)
        assert epoch_of(path) == epoch
    assert epoch_of(previous_of(path)) == 2
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.parametrize("at", ["write", "first rename", "sync", "second rename"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError], ids=["killed", "disk full"])
def test_interrupted_write_leaves_the_last_checkpoint(tmp_path, monkeypatch, at, error):
    path = tmp_path / "last.ckpt"
    for epoch in (1, 2):
        save(path, epoch)
    replace, renames = Path.replace, []

    interrupt = Mock(side_effect=error)

    def renamed(self, target):
        renames.append(target)
        if len(renames) == {"first rename": 1, "second rename": 2}.get(at):
            raise error
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", renamed)
        if at in ("write", "sync"):
            owner = Path if at == "write" else os
            patch.setattr(owner, {"write": "write_bytes", "sync": "fsync"}[at], interrupt)
        if error is KeyboardInterrupt:  # a killed process does not clean up
            patch.setattr(Path, "unlink", interrupt)
        with pytest.raises(error):
            save(path, 3)
    assert epoch_of(newest_whole(path)) == 2
    save(path, 3)
    assert (epoch_of(path), epoch_of(previous_of(path))) == (3, 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_newest_intact_checkpoint_is_chosen(tmp_path, caplog):
    path = tmp_path / "last.ckpt"
    assert newest_whole(path) is None
    for epoch in (1, 2):
        save(path, epoch)
    assert newest_whole(path) == path
    assert caplog.text == ""
    path.write_bytes(path.read_bytes()[:-7])
    assert newest_whole(path, tidy=False) == previous_of(path)
    assert path.exists()
    assert newest_whole(path) == previous_of(path)
    assert "last.ckpt is damaged (BadZipFile" in caplog.text
    assert not path.exists()
    previous_of(path).write_bytes(b"")
    assert newest_whole(path) is None
    assert "starts from the beginning" in caplog.text
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["last.ckpt.damaged", "last.previous.ckpt.damaged"]


def test_unreadable_checkpoint_is_not_set_aside(tmp_path, monkeypatch):
    path = save(tmp_path / "last.ckpt", 1)
    broken = Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO)))
    monkeypatch.setattr("phantomgrad_suite.checkpoint.storage.zipfile.ZipFile", broken)
    with pytest.raises(UserError, match=r"last.ckpt cannot be read at the moment \(.*\)\. It is"):
        newest_whole(path)
    assert path.exists()


@given(data=st.data())
def test_flipped_bit_is_found_or_harmless(data, tmp_path_factory):
    """Some bytes are padding, or names that are never read."""
    path = save(tmp_path_factory.mktemp("flip") / "last.ckpt", 5)
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    if damage(path) is None:
        loaded = WholeCheckpointIO().load_checkpoint(path, weights_only=True)
        assert loaded["epoch"] == 5
        assert_close(loaded["state_dict"]["weight"], torch.arange(64), rtol=0, atol=0)


def test_flipped_bit_in_a_weight_is_found(tmp_path):
    """``torch.load`` would not notice."""
    path = save(tmp_path / "last.ckpt", 5)
    content = path.read_bytes()
    weight = bytes(torch.arange(64).numpy().data)
    assert content.count(weight) == 1
    path.write_bytes(content.replace(weight, b"\x01" + weight[1:]))
    assert int(torch.load(path, weights_only=True)["state_dict"]["weight"][0]) == 1
    assert "checksum" in (damage(path) or "")
