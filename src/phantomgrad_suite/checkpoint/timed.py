"""Checkpoints in the middle of long epochs, and when a signal asks the run to stop."""

from __future__ import annotations

import logging
import math
import signal
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.checkpoint.signals import (
    Stopped,
    StopSignals,
    leave_signals_to_main_process,
)
from phantomgrad_suite.checkpoint.state import is_resumable

log = logging.getLogger(__name__)

_STEPS_BETWEEN_AGREEMENTS = 10
_DUE = 1  # less than the number of any signal that is recorded


class TimedCheckpoint(Callback):
    """Saves a checkpoint in the middle of an epoch at intervals of time, and when asked to stop.

    After a signal it saves as soon as possible and raises :class:`Stopped`. Lightning's
    ``ModelCheckpoint(train_time_interval=...)`` knows neither signals nor loaders that cannot
    restore their position; with such a loader, a run saves at the end of its epochs only. Must
    come after all callbacks that have a state.

    Args:
        path: of the checkpoint.
        minutes: between two checkpoints; 0 for one after every step (after every tenth in a
            distributed run), ``None`` for none.
        signals: the signals received.
    """

    def __init__(self, path: Path, minutes: float | None, signals: StopSignals) -> None:
        self._path, self._signals = path, signals
        self._seconds = math.inf if minutes is None else 60 * minutes
        self._last = time.monotonic()
        self._announced = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Have the processes that load data ignore signals."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if data is not None:
            data.worker_init_fn = leave_signals_to_main_process

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle signals in place of Lightning."""
        self._signals.listen()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Save a checkpoint if it is due and the epoch is not over."""
        agreeing = trainer.world_size == 1 or args[-1] % _STEPS_BETWEEN_AGREEMENTS == 0
        if agreeing and not trainer.is_last_batch and is_resumable(trainer.train_dataloader):
            is_due = time.monotonic() - self._last >= self._seconds
            self._save_if_asked(trainer, pl_module, is_due)
        else:
            self._announce(trainer)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Announce a stop, as the rest of the evaluation may take long."""
        self._announce(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save a checkpoint if a signal asked for it; the last epoch ends the run anyway."""
        if trainer.current_epoch + 1 != trainer.max_epochs:
            self._save_if_asked(trainer, pl_module)

    def _announce(self, trainer: Trainer) -> None:
        if self._signals.asked and not self._announced and trainer.is_global_zero:
            self._announced = True
            log.warning(
                "%s: stopping at the next checkpoint, at the latest at the end of epoch %d",
                signal.Signals(self._signals.asked).name,
                trainer.current_epoch + 1,
            )

    def _save_if_asked(self, trainer: Trainer, task: Any, is_due: bool = False) -> None:
        own = self._signals.asked or (_DUE if is_due else 0)
        reason = int(_reduced(trainer, torch.tensor(own), "max"))
        if not reason:
            return
        if task.total_loss is not None:
            check_finite(_reduced(trainer, task.total_loss, "sum"), trainer.current_epoch + 1)
        trainer.save_checkpoint(self._path)
        self._last = time.monotonic()
        if reason == _DUE:
            return
        if trainer.is_global_zero:
            log.warning(
                "stopped by %s in epoch %d, after step %d: the same command resumes from there",
                signal.Signals(reason).name,
                trainer.current_epoch + 1,
                trainer.global_step,
            )
        raise Stopped(reason)


def _reduced(trainer: Trainer, value: Tensor, operation: str) -> Tensor:
    """Return the sum or maximum over the processes, which all save or all do not."""
    if trainer.world_size == 1:
        return value
    own = value.to(trainer.strategy.root_device, copy=True)
    return trainer.strategy.reduce(own, reduce_op=operation)
