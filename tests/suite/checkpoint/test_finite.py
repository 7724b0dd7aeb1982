"""Steps with a NaN or infinite gradient: not applied, kept, and replayed."""

from __future__ import annotations

import errno
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from interruptions import Watched, assert_same_run, checkpoint
from torch import nn
from training import Workplace

from phantomgrad_suite.checkpoint import WholeCheckpointIO
from phantomgrad_suite.checkpoint.finite import gradients_are_finite, nonfinite_gradients
from phantomgrad_suite.replay import replay
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record

DIGITS = (
    "experiment=digits/upg_k5_d0.5",
    "trainer.max_epochs=1",
    "runtime.checkpoint.every_n_epochs=1",
)
LANGUAGE = ("experiment=lm/pydoc_preln_jr_upg_k5_d0.8", "trainer.max_epochs=1")


def infinite(first: int, last: int | None = None) -> str:
    steps = f"first: {first}, last: {last or first}"
    return f"+runtime.callbacks.infinite={{_target_: interruptions.InfiniteGradient, {steps}}}"


WATCHED = "+runtime.callbacks.watched={_target_: interruptions.Watched}"
POISON = "+runtime.callbacks.poison={_target_: interruptions.PoisonedStep, step: 5}"


def test_nonfinite_gradient_stops_the_run_before_the_optimizer_step(workplace: Workplace) -> None:
    with pytest.raises(
        UserError,
        match=r"the gradient of step 5 \(epoch 1\) is not finite in .* and \d+ more: nothing was "
        r"updated; python scripts/replay.py \S+step5-rank0.pt replays the step; try a smaller",
    ):
        workplace.train(*DIGITS, POISON, WATCHED)
    assert len(Watched.losses) == 4


def test_nonfinite_step_is_left_out(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    """Parameters stay, and its loss is not in the mean of the epoch."""
    folder = workplace.train(*DIGITS, "nonfinite=skip", POISON, WATCHED)
    losses, weights = Watched.losses, Watched.weights
    assert math.isnan(losses[4])
    # The projection to well-posed parameters moves the last digit.
    moved = [float((b - a).abs().max()) for a, b in itertools.pairwise(weights)]
    assert moved[3] < 1e-6 < 1e-4 < min(moved[2], moved[4])
    assert "the step is left out" in caplog.text
    kept = checkpoint(folder)["callbacks"]["History"]["curves"]["train/loss"][0]
    total = read_record(folder / "record.json").data["train"]
    sizes = [64] * (len(losses) - 1) + [total - 64 * (len(losses) - 1)]
    finite = [(x, n) for x, n in zip(losses, sizes, strict=True) if not math.isnan(x)]
    assert kept == pytest.approx(sum(x * n for x, n in finite) / sum(n for _, n in finite))


def test_step_that_is_left_out_leaves_no_statistics(workplace: Workplace) -> None:
    """The forward pass updates the running means of a BatchNorm before the check."""
    narrow = ("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8")
    budget = ("solver.max_evaluations=3", "model=mdeq_tiny", "nonfinite=skip")
    folder = workplace.train(*DIGITS, *narrow, *budget, POISON)
    state = checkpoint(folder)["state_dict"]
    assert any("running_mean" in name for name in state)
    assert all(bool(value.isfinite().all()) for value in state.values())
    steps = {int(v) for name, v in state.items() if name.endswith("num_batches_tracked")}
    assert steps == {16}  # of 17
    (path,) = workplace.path.glob("runs/**/step5-rank0.pt")
    assert replay(path)["parameters"] == []


def test_epoch_without_a_step_has_no_loss(workplace: Workplace) -> None:
    """Not that of the epoch before."""
    chains = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=4", "nonfinite=skip")
    record = workplace.record(*chains, infinite(2))
    losses = record.curves["train/loss"]
    assert [loss is None for loss in losses] == [False, True, False, False]


def test_run_resumes_if_the_gradient_is_finite_again(workplace: Workplace) -> None:
    """After a bit flip in the memory of a device, for example."""
    here = (*DIGITS, "runtime.checkpoint.every_minutes=0")
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    with pytest.raises(UserError, match="step 9"):
        workplace.train(*here, infinite(9))
    assert_same_run(workplace.train(*here), whole)


def test_step_that_cannot_be_kept_does_not_end_the_run(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save = WholeCheckpointIO.save_checkpoint

    def full(
        self: WholeCheckpointIO, content: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        if "step6" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, content, path, storage_options)

    monkeypatch.setattr(WholeCheckpointIO, "save_checkpoint", full)
    folder = workplace.train(*DIGITS, "nonfinite=skip", infinite(6))
    assert "and the step could not be kept" in caplog.text
    assert (folder / "record.json").exists()


def test_ten_nonfinite_steps_in_a_row_stop_the_run(workplace: Workplace) -> None:
    with pytest.raises(UserError, match=r"step 12 .*, for the 10th time in a row; try"):
        workplace.train(*DIGITS, "nonfinite=skip", infinite(3, 20))
    files = sorted(p.name for p in workplace.path.glob("runs/**/nonfinite/*"))
    assert files == [f"step{n}-rank0.pt" for n in (3, 4, 5, 6, 7)]


def test_checking_changes_nothing(workplace: Workplace) -> None:
    workplace.train(*DIGITS, WATCHED)
    losses = Watched.losses
    workplace.train(*DIGITS, WATCHED, "nonfinite=null", "runtime.paths.runs=other")
    assert losses == Watched.losses


def test_gradient_of_large_entries_is_finite() -> None:
    """Its norm is not."""
    layer = nn.Linear(2, 2, dtype=torch.float32)
    layer.weight.grad = torch.full((2, 2), 3e38, dtype=torch.float32)
    assert gradients_are_finite(layer)
    layer.weight.grad[0, 1] = math.nan
    assert not gradients_are_finite(layer)
    assert nonfinite_gradients(layer) == ["weight"]


@pytest.mark.parametrize("row", [DIGITS, LANGUAGE], ids=["digits", "language"])
def test_replayed_step_has_the_same_loss(workplace: Workplace, row: tuple[str, ...]) -> None:
    """To the last bit: batch, weights, dropout, jitter and memory are those of the run."""
    workplace.train(*row, "nonfinite=skip", infinite(6), WATCHED)
    (path,) = workplace.path.glob("runs/**/step6-rank0.pt")
    found = replay(path)
    assert found["loss"] == Watched.losses[5]
    assert found["step"].startswith("6 of")
    assert not any(found[part] for part in ("batch", "parameters", "modules", "gradients"))


def test_replay_shows_where_the_first_nan_arose(workplace: Workplace) -> None:
    with pytest.raises(UserError, match="step 5"):
        workplace.train(*DIGITS, POISON)
    (path,) = workplace.path.glob("runs/**/step5-rank0.pt")
    found = replay(path)
    assert math.isnan(found["loss"])
    assert (found["batch"], found["parameters"]) == ([".images"], [])
    assert found["modules"][0].startswith("model.")
    assert len(found["gradients"]) > 1
    assert found["solve"] == [math.inf]


def test_replay_refuses_other_files(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "other.pt")
    for name in ("nothing.pt", "other.pt"):
        with pytest.raises(UserError, match=rf"{name} holds no step .* choose a file in runs"):
            replay(tmp_path / name)
