"""Checkpoints that do not wait for the end of a long epoch, and stops that lose nothing."""

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
from phantomgrad_suite.checkpoint.place import knows_its_place
from phantomgrad_suite.checkpoint.signals import (
    Stopped,
    StopSignals,
    left_to_the_main_process,
)

log = logging.getLogger(__name__)

_STEPS_BETWEEN_QUESTIONS = 10
_DUE = 1  # below the numbers of the signals that are listened to


class TimedCheckpoint(Callback):
    """Saves a checkpoint in the middle of an epoch, whenever so much time has passed.

    What resumes from it is the uninterrupted run: the task keeps its means, the loader its place.
    A loader that does not know its place is left alone; its run has the checkpoints of its epochs.
    Stands behind all callbacks that keep a state.

    At SIGTERM, SIGUSR2 and Ctrl-C it saves one as soon as it can and ends the run
    (:class:`Stopped`); where that takes longer than the step, it says so at once.

    Args:
        path: of the checkpoint.
        minutes: between two of them; 0 for one after every step (in a distributed run after every
            tenth), ``None`` for none.
        signals: what the run is asked for.

    Raises:
        ValueError: ``minutes`` is negative.
    """

    def __init__(self, path: Path, minutes: float | None, signals: StopSignals) -> None:
        minutes = math.inf if minutes is None else minutes
        if not minutes >= 0:
            raise ValueError(f"minutes must not be negative, got {minutes}")
        self._path, self._seconds = path, 60 * minutes
        self._last = time.monotonic()
        self._signals = signals
        self._told = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Have the loaders' worker processes ignore signals: the main process handles them."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if data is not None:
            data.worker_init_fn = left_to_the_main_process

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen to signals, in the place of Lightning."""
        self._signals.listen()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save one, if it is time for it and the epoch is not over.

        Raises:
            UserError: the training loss is no longer finite, so nothing is worth keeping.
            Stopped: a signal has asked for it.
        """
        if not _may_save(trainer, batch_idx):
            self._tell(trainer)
            return
        reason = self._reason(trainer, time.monotonic() - self._last >= self._seconds)
        if reason:
            check_finite(self._total_loss(trainer, pl_module), trainer.current_epoch + 1)
            self._save(trainer, reason)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Tell of a signal: the rest of the evaluation may take long."""
        self._tell(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save one, if a signal has asked for it; the last epoch ends the run anyway.

        Raises:
            Stopped: a signal has asked for it.
        """
        more_to_come = trainer.current_epoch + 1 != trainer.max_epochs
        if more_to_come and (reason := self._reason(trainer)):
            self._save(trainer, reason)

    def _tell(self, trainer: Trainer) -> None:
        """Say once that a signal was heard, and until when the run goes on."""
        if self._told or not self._signals.asked or not trainer.is_global_zero:
            return
        self._told = True
        log.warning(
            "%s: stopping at the next checkpoint, at the latest that of the end of epoch %d",
            signal.Signals(self._signals.asked).name,
            trainer.current_epoch + 1,
        )

    def _reason(self, trainer: Trainer, is_due: bool = False) -> int:
        """Return why to save now: a signal, ``_DUE``, or 0; the same in all processes."""
        reason = self._signals.asked or (_DUE if is_due else 0)
        if trainer.world_size == 1:
            return reason
        # All processes save, or none. Asking makes the device wait: it is not done every time.
        told = torch.tensor(reason, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(told, reduce_op="max"))

    def _total_loss(self, trainer: Trainer, pl_module: LightningModule) -> Tensor | None:
        """Return the sum over the processes: all of them refuse to save, or none."""
        loss: Tensor | None = getattr(pl_module, "total_loss", None)
        if loss is None or trainer.world_size == 1:
            return loss
        total = loss.clone().to(trainer.strategy.root_device)
        return trainer.strategy.reduce(total, reduce_op="sum")

    def _save(self, trainer: Trainer, reason: int) -> None:
        trainer.save_checkpoint(self._path)
        self._last = time.monotonic()
        if reason == _DUE:
            return
        if trainer.is_global_zero:
            log.warning(
                "stopped by %s in epoch %d, after step %d: the same command goes on from there",
                signal.Signals(reason).name,
                trainer.current_epoch + 1,
                trainer.global_step,
            )
        raise Stopped(reason)


def _may_save(trainer: Trainer, batch_idx: int) -> bool:
    """Return whether a checkpoint could be saved after this step, in the middle of the epoch."""
    if not knows_its_place(trainer.train_dataloader) or trainer.is_last_batch:
        return False
    return trainer.world_size == 1 or batch_idx % _STEPS_BETWEEN_QUESTIONS == 0
