"""Callbacks that disturb a run, and the comparison of two runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer

from phantomgrad_suite.runs.records import Record, read_record

if TYPE_CHECKING:
    from training import Workplace


class Interrupt(Callback):
    """Raises in an epoch or a step (counted from 1), before its backward pass."""

    def __init__(self, epoch: int | None = None, step: int | None = None) -> None:
        self._epoch, self._step = epoch, step

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor
    ) -> None:
        if trainer.current_epoch + 1 == self._epoch:
            raise InterruptedError(f"in epoch {self._epoch}")
        if trainer.global_step + 1 == self._step:
            raise InterruptedError(f"in step {self._step}")


class Poison(Callback):
    """Sets a weight, or else the images, to NaN before a step (counted from 1)."""

    def __init__(self, step: int, weight: str = "") -> None:
        self._step, self._weight = step, weight

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step + 1 == self._step:
            model, weight = pl_module.model, self._weight
            poisoned = model.get_parameter(weight) if weight else batch.images
            poisoned.detach().fill_(torch.nan)


class Signal(Callback):
    """Sends this process a signal in a step (counted from 1)."""

    def __init__(self, signum: int, step: int) -> None:
        self._signum, self._step = signum, step

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor
    ) -> None:
        if trainer.global_step + 1 == self._step:
            os.kill(os.getpid(), self._signum)


def interrupted(workplace: Workplace, at: int, *overrides: str, unit: str = "epoch") -> Path:
    """Interrupt a run in that epoch or step; return its folder."""
    bomb = f"+runtime.callbacks.bomb={{_target_: interruptions.Interrupt, {unit}: {at}}}"
    with pytest.raises(InterruptedError, match=f"in {unit} {at}"):
        workplace.train(*overrides, bomb)
    (checkpoint,) = workplace.path.glob("runs/**/last.ckpt")
    assert not list(workplace.path.glob("runs/**/record.json"))
    return checkpoint.parents[1]


def checkpoint(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def untimed(record: Record) -> dict[str, list[float]]:
    """The curves of a record, without those of seconds."""
    return {name: c for name, c in record.curves.items() if not name.startswith("seconds/")}


def assert_same_run(folder: Path, other: Path) -> None:
    """Records and last checkpoints agree in every bit, but for times."""
    ours, theirs = (read_record(path / "record.json") for path in (folder, other))
    assert (ours.result, ours.weights) == (theirs.result, theirs.weights)
    assert untimed(ours) == untimed(theirs)
    a, b = checkpoint(folder), checkpoint(other)
    assert (a["epoch"], a["lr_schedulers"]) == (b["epoch"], b["lr_schedulers"])
    optimizers = [c["optimizer_states"][0]["state"] for c in (a, b)]
    for mine, yours in ((a["state_dict"], b["state_dict"]), optimizers):
        torch.testing.assert_close(mine, yours, rtol=0, atol=0)


def measured_curves(
    workplace: Workplace, run: Sequence[str], off: Sequence[str], at: int, unit: str = "epoch"
) -> dict[str, list[float]]:
    """The curves of what a run measures, which changes nothing else; nor does an interruption.

    ``off`` are the settings without measurements.
    """
    plain = workplace.train(*run, *off, "runtime.paths.runs=plain")
    whole = workplace.train(*run, "runtime.paths.runs=whole")
    folder = interrupted(workplace, at, *run, unit=unit)
    assert workplace.train(*run) == folder
    weights = [checkpoint(path)["state_dict"] for path in (plain, whole)]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    assert_same_run(folder, whole)
    without, curves, again = (
        untimed(read_record(path / "record.json")) for path in (plain, whole, folder)
    )
    kept = {name: curve for name, curve in curves.items() if name not in without}
    assert again == curves == without | kept
    return kept
