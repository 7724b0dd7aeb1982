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


@pytest.mark.parametrize("part", ["callbacks", "generators", "optimizer_states"])
@pytest.mark.parametrize("left", ["nothing", "less"])
def test_incomplete_checkpoint_is_not_resumed(workplace, whole_runs, caplog, part, left):
    """Otherwise the run would go on, with other results. It resumes from the one before."""
    whole = whole_runs.train(workplace, *CHAINS)
    folder = interrupted(workplace, 11, *CHAINS)
    path = folder / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    if left == "nothing":
        del content[part]
    elif part == "optimizer_states":
        content[part][0]["state"] = {}
    else:
        (content[part][0] if isinstance(content[part], list) else content[part]).popitem()
    torch.save(content, path)
    workplace.train(*CHAINS)
    assert f"last.ckpt is damaged (its {part} are not complete): kept as" in caplog.text
    assert_same_run(folder, whole)


@pytest.mark.parametrize("part", ["callbacks", "generators", "optimizer_states", "provenance"])
def test_checkpoint_without_sizes_needs_all_parts(workplace, part):
    """As an older version, or somebody else, has written it."""
    folder = interrupted(workplace, 8, *CHAINS)
    path = folder / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    del content["sizes"], content[part]
    torch.save(content, path)
    with pytest.raises(UserError, match=rf"is not a checkpoint of this model \(no {part}\): del"):
        workplace.train(*CHAINS)


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


@pytest.mark.parametrize("where", ["weight", "moment"])
def test_checkpoint_with_nan_is_not_resumed(workplace, where):
    folder = interrupted(workplace, 8, *CHAINS, "runtime.checkpoint.every_n_epochs=2")
    path = folder / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    if where == "weight":
        content["state_dict"][f"model.{UNUSED}"][0] = torch.nan
    else:
        content["optimizer_states"][0]["state"][0]["exp_avg"].fill_(torch.nan)
    torch.save(content, path)
    name = UNUSED if where == "weight" else "exp_avg of the optimizer for parameter 0"
    with pytest.raises(UserError, match=f"values that are not finite, in .*{name}: delete it"):
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
