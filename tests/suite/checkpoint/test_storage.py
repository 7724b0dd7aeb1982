"""Checkpoints are complete, or the one before stays; damaged and foreign ones are detected."""

import errno
import logging
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from interruptions import assert_same_run, interrupted
from torch.testing import assert_close
from train.chains import CHAINS

from phantomgrad_suite.checkpoint.storage import (
    WholeCheckpointIO,
    damage,
    newest_intact,
    previous_of,
)


def save(path, epoch):
    WholeCheckpointIO().save_checkpoint({"epoch": epoch, "weight": torch.arange(64)}, path)
    return path


def epoch_of(path):
    assert path is not None
    return int(WholeCheckpointIO().load_checkpoint(path, weights_only=True)["epoch"])


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
    assert epoch_of(newest_intact(path, tidy=True)) == 2
    save(path, 3)
    assert (epoch_of(path), epoch_of(previous_of(path))) == (3, 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_newest_intact_checkpoint_is_chosen(tmp_path):
    path = tmp_path / "last.ckpt"
    assert newest_intact(path, tidy=True) is None
    for epoch in (1, 2):
        save(path, epoch)
    assert newest_intact(path, tidy=True) == path
    path.write_bytes(path.read_bytes()[:-7])
    for tidy in (False, True):
        assert path.exists()
        assert newest_intact(path, tidy=tidy) == previous_of(path)
    previous_of(path).write_bytes(b"")
    assert newest_intact(path, tidy=True) is None
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["last.ckpt.damaged", "last.previous.ckpt.damaged"]


def test_unreadable_checkpoint_is_not_taken_for_a_damaged_one(tmp_path, monkeypatch):
    path = save(tmp_path / "last.ckpt", 1)
    broken = Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO)))
    monkeypatch.setattr("phantomgrad_suite.checkpoint.storage.zipfile.ZipFile", broken)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        newest_intact(path, tidy=True)
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
        assert_close(loaded["weight"], torch.arange(64), rtol=0, atol=0)


def test_flipped_bit_in_a_weight_is_found(tmp_path):
    """``torch.load`` would not notice."""
    path = save(tmp_path / "last.ckpt", 5)
    content = path.read_bytes()
    weight = bytes(torch.arange(64).numpy().data)
    assert content.count(weight) == 1
    path.write_bytes(content.replace(weight, b"\x01" + weight[1:]))
    assert int(torch.load(path, weights_only=True)["weight"][0]) == 1
    assert "checksum" in (damage(path) or "")


@pytest.mark.parametrize("generations", [1, 2])
def test_run_with_a_damaged_checkpoint_goes_on(workplace, whole_runs, caplog, generations):
    """It resumes from the checkpoint before it, or starts from the beginning without one."""
    caplog.set_level(logging.INFO)
    whole = whole_runs.train(workplace, *CHAINS)
    folder = interrupted(workplace, 6, *CHAINS)
    path = folder / "checkpoints" / "last.ckpt"
    path.write_bytes(path.read_bytes()[:1000])
    if generations == 1:
        previous_of(path).unlink()
    workplace.train(*CHAINS)
    assert "last.ckpt is damaged (BadZipFile" in caplog.text
    assert ("resuming from" in caplog.text) == (generations == 2)
    assert_same_run(folder, whole)


@pytest.mark.parametrize("nonfinite", ["stop", "null"])
def test_nan_weight_without_effect_stops_the_run(workplace, nonfinite):
    """At the end of its epoch, whether or not steps are checked."""
    here = (*CHAINS, f"nonfinite={nonfinite}")
    unused = "layer.unused_bias"  # neither the loss nor a gradient depends on it
    poison = f"{{_target_: interruptions.Poison, step: 3, weight: {unused}}}"
    record = workplace.record(*here, f"+runtime.callbacks.poison={poison}")
    assert "weights are not finite in epoch 3, in " in record.diverged["reason"]
    assert record.diverged["reason"].endswith(unused)


def test_a_checkpoint_that_another_process_has_just_renamed_counts_as_damaged(tmp_path):
    assert (damage(tmp_path / "last.ckpt") or "").startswith("FileNotFoundError")
