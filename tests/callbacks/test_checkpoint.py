"""Checkpoints are whole, or the one before stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from phantomgrad.callbacks import WholeCheckpointIO


def test_checkpoint_comes_back(tmp_path: Path) -> None:
    io, path = WholeCheckpointIO(), tmp_path / "new" / "last.ckpt"
    io.save_checkpoint({"epoch": 3, "weight": torch.ones(2)}, path)
    loaded = io.load_checkpoint(path, weights_only=True)
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["weight"], torch.ones(2))
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]


def test_failed_write_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, path = WholeCheckpointIO(), tmp_path / "last.ckpt"
    io.save_checkpoint({"epoch": 3}, path)
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        io.save_checkpoint({"epoch": 4}, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]
