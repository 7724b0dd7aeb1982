"""Damaged files, NaN losses and full disks are reported, and intact files are kept."""

import errno
import logging
import math
import os

import pytest
import torch
from interruptions import assert_same_run, checkpoint, interrupted
from train.chains import CHAINS

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record


@pytest.mark.parametrize("other", ["size", "kind"])
def test_checkpoint_of_something_else_is_reported_and_kept(workplace, other):
    """Intact, but of another model, or not a checkpoint."""
    folder = interrupted(workplace, 8, *CHAINS)
    path = folder / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    name, weight = next((k, v) for k, v in content["state_dict"].items() if v.dim() == 2)
    content["state_dict"][name] = weight[:-1]
    torch.save(content if other == "size" else ["nothing"], path)
    before = path.read_bytes()
    reason = rf"\(.* for {name}: .*\): " if other == "size" else ".* delete it to start"
    with pytest.raises(UserError, match=f"last.ckpt is not a checkpoint of this model {reason}"):
        workplace.train(*CHAINS)
    assert path.read_bytes() == before


@pytest.mark.parametrize("generations", [1, 2])
def test_damaged_checkpoint_is_kept_and_the_run_goes_on(workplace, caplog, generations):
    """The run resumes from the checkpoint before it, or starts from the beginning without one."""
    caplog.set_level(logging.INFO)
    whole = workplace.train(
        *CHAINS, "runtime.checkpoint.every_n_epochs=2", "runtime.paths.runs=whole"
    )
    folder = interrupted(workplace, 8, *CHAINS, "runtime.checkpoint.every_n_epochs=2")
    path = folder / "checkpoints" / "last.ckpt"
    path.write_bytes(path.read_bytes()[:1000])
    if generations == 1:
        (folder / "checkpoints" / "last.previous.ckpt").unlink()
    workplace.train(*CHAINS, "runtime.checkpoint.every_n_epochs=2")
    assert "last.ckpt is damaged (BadZipFile" in caplog.text
    assert len((folder / "checkpoints" / "last.ckpt.damaged").read_bytes()) == 1000
    assert ("resuming from" in caplog.text) == (generations == 2)
    assert ("starts from the beginning" in caplog.text) == (generations == 1)
    assert_same_run(folder, whole)


UNUSED = "layer.unused_bias"  # neither the loss nor a gradient depends on it


@pytest.mark.parametrize("nonfinite", ["stop", "null"])
def test_nan_weight_without_effect_stops_the_run(workplace, nonfinite):
    """At the end of its epoch or, without that check, at the next checkpoint."""
    here = (*CHAINS, "runtime.checkpoint.every_n_epochs=2", f"nonfinite={nonfinite}")
    poison = f"{{_target_: interruptions.Poison, epoch: 7, weight: {UNUSED}}}"
    epoch = 7 if nonfinite == "stop" else 8
    folder = workplace.train(*here, f"+runtime.callbacks.poison={poison}")
    record = read_record(folder / "record.json")
    assert f"weights are not finite in epoch {epoch}, in " in record.diverged["reason"]
    assert record.diverged["reason"].endswith(UNUSED)
    assert len(record.curves["train/loss"]) in (epoch - 1, epoch)
    assert math.isfinite(record.diverged.get("loss", 0.0))
    saved = checkpoint(folder)
    assert saved["epoch"] == 5
    assert bool(saved["state_dict"][f"model.{UNUSED}"].isfinite().all())


def test_checkpoint_with_a_nan_weight_is_not_resumed(workplace):
    folder = interrupted(workplace, 8, *CHAINS, "runtime.checkpoint.every_n_epochs=2")
    path = folder / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    content["state_dict"][f"model.{UNUSED}"][0] = torch.nan
    torch.save(content, path)
    with pytest.raises(UserError, match=f"weights that are not finite, in .*{UNUSED}: delete it"):
        workplace.train(*CHAINS)
    path.unlink()
    workplace.train(*CHAINS)  # from the one before


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "the disk is full: make room"), (errno.EROFS, "make it writable")],
)
def test_disk_that_refuses_files_spares_the_last_checkpoint(
    workplace, whole_runs, monkeypatch, number, remedy
):
    """The next checkpoint is not completed, and the run resumes from the last one."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    whole = whole_runs.train(workplace, *CHAINS)
    folder = interrupted(workplace, 8, *CHAINS)
    before = (folder / "checkpoints" / "last.ckpt").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(UserError, match=f"last.ckpt: .*: {remedy} and .* it resumes from"):
            workplace.train(*CHAINS)
    (left,) = (folder / "checkpoints").iterdir()
    assert left.read_bytes() == before
    assert_same_run(workplace.train(*CHAINS), whole)
