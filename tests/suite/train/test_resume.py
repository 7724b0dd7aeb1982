"""Interrupted runs, resumed, equal the uninterrupted ones bit for bit."""

import pytest
from interruptions import assert_same_run, checkpoint, interrupted
from training import SMALL_MDEQ

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record

# The learning rate drops right where a checkpoint is written.
DROP = ("schedule=multistep", "schedule.milestones=[3]", "schedule.gamma=0.1")
NARROW = (*SMALL_MDEQ, *("solver.max_evaluations=3", "adjoint.max_evaluations=3"))


def test_resumed_run_is_the_uninterrupted_one(workplace, small_tu):
    """It is interrupted right after the checkpoint, where the learning rate drops."""
    here = (
        *("experiment=table4/cox2_implicit", f"runtime.dataset.root={small_tu}"),
        *("dataset.folds=3", "dataset.batch_size=8", "trainer.max_epochs=5"),
        *("runtime.checkpoint.every_n_epochs=3", *DROP),
    )
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    folder = interrupted(workplace, 4, *here)
    assert checkpoint(folder)["epoch"] == 2
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    ours, theirs = (read_record(path / "record.json") for path in (folder, whole))
    assert checkpoint(folder)["provenance"]["data"] == ours.data["fingerprint"]
    (first,) = ours.environment["earlier"]
    assert ours.started == first["started"] <= ours.finished
    assert first["git"] == ours.environment["git"]
    assert "earlier" not in theirs.environment
    rates = checkpoint(folder)["lr_schedulers"][0]
    assert rates["milestones"] == {3: 1}


@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_run_resumed_in_the_middle_of_an_epoch_is_the_uninterrupted_one(workplace, cifar_root):
    """Each of two epochs has five shuffled batches; dropout and pretraining are on."""
    here = (
        *("experiment=table1/implicit", "trainer.max_epochs=2", *NARROW),
        *("runtime.checkpoint.every_minutes=0", "runtime.checkpoint.every_n_epochs=1"),
        "runtime.callbacks.spectrum.every_n_epochs=2",
        "runtime.callbacks.spectrum.iterations=3",
        *(f"runtime.dataset.root={cifar_root}", "dataset.batch_size=20", "dataset.augment=true"),
        *("task.pretraining_steps=0.6", "task.pretraining_layers=2"),  # 6 of 10 steps
    )
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    folder = interrupted(workplace, 8, *here, unit="step")
    assert checkpoint(folder)["global_step"] == 7
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)


EVERY_THIRD = "gradient.damping={_target_: phantomgrad.AdaptiveDamping, every: 3}"


def test_resumed_run_with_adaptive_damping_is_the_uninterrupted_one(workplace):
    """Measured every third pass, interrupted between two measurements."""
    epochs = ("trainer.max_epochs=10", "runtime.checkpoint.every_n_epochs=5")
    here = ("gradient=npg", EVERY_THIRD, *epochs)
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    folder = interrupted(workplace, 8, *here)
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    states = [checkpoint(f)["callbacks"]["History"]["curves"] for f in (folder, whole)]
    radii, others = (curves["gradient/radius"] for curves in states)
    assert radii == others
    assert len(set(radii)) == 4  # one for each measurement
    dampings = states[0]["gradient/damping"]
    assert dampings == pytest.approx([min(1, 1 / radius) for radius in radii], rel=1e-5)


def test_the_checkpoint_of_another_run_is_refused(workplace):
    """A folder that was renamed does not pass for the run whose name it has now."""
    here = ("trainer.max_epochs=4", "runtime.checkpoint.every_n_epochs=2")
    folder = interrupted(workplace, 4, *here)
    other = folder.rename(folder.with_name(folder.name.replace("seed0", "seed1")))
    before = (other / "checkpoints" / "last.ckpt").read_bytes()
    with pytest.raises(UserError, match=r"of another run \(its instance is seed0.*, not seed1"):
        workplace.train(*here, "seed=1")
    assert (other / "checkpoints" / "last.ckpt").read_bytes() == before
    assert not (other / "record.json").exists()
