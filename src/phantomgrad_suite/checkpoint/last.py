"""The last checkpoint of a run: every few epochs, within long ones, and when asked to stop."""

import logging
import math
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException

from phantomgrad.checks import check_at_least, check_not_negative
from phantomgrad_suite.checkpoint.distributed import leave_signals_to_main_process
from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.checkpoint.state import is_resumable

log = logging.getLogger(__name__)

_STEPS_BETWEEN_AGREEMENTS = 10
_DUE = 1  # less than the number of any signal that is recorded


class Stopped(SIGTERMException):
    """A run that saved and stopped at a signal; the process exits as if the signal ended it."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)


class LastCheckpoint(Checkpoint):
    """Saves at the end of epochs, in the middle of long ones, and on SIGTERM, SIGINT or SIGUSR2.

    After a signal it saves as soon as possible and raises :class:`Stopped`; a second SIGINT stops
    the run at once. In its last epoch a run ends normally: then ``stop_signal`` has the signal.
    SIGUSR2 is what submitit has SLURM send shortly before the time limit of a job.
    It saves only where an optimizer step was made: gradients that are accumulated are not saved.
    With a loader that cannot restore its position, a run saves at the end of its epochs only.
    Lightning's ``ModelCheckpoint`` knows neither signals nor such loaders.

    ``every_minutes=0`` saves after every step (in a distributed run every tenth), ``None`` only
    at the end of epochs.
    """

    def __init__(self, path: Path, every_n_epochs: int, every_minutes: float | None) -> None:
        check_at_least("every_n_epochs", every_n_epochs, 1)
        check_not_negative("every_minutes", every_minutes or 0)
        self._path, self._epochs = path, every_n_epochs
        self._seconds = math.inf if every_minutes is None else 60 * every_minutes
        self._last = time.monotonic()
        self.stop_signal = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        data.worker_init_fn = leave_signals_to_main_process

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace Lightning's handlers, which start a collective operation during another one."""
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(signum, self._record)

    def _record(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self.stop_signal:
            raise KeyboardInterrupt
        if not self.stop_signal and getattr(rank_zero_only, "rank", 0) == 0:
            name = signal.Signals(signum).name
            log.warning("%s: stopping at the next checkpoint, at the latest after the epoch", name)
        self.stop_signal = signum

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        step, rest = divmod(args[-1] + 1, trainer.accumulate_grad_batches)
        agreeing = trainer.world_size == 1 or step % _STEPS_BETWEEN_AGREEMENTS == 1
        if (
            not rest
            and agreeing
            and not trainer.is_last_batch
            and is_resumable(trainer.train_dataloader)
        ):
            is_due = time.monotonic() - self._last >= self._seconds
            self._save(trainer, pl_module, is_due, self.stop_signal)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        signum = 0 if epoch == trainer.max_epochs else self.stop_signal  # the run ends anyway
        self._save(trainer, pl_module, epoch % self._epochs == 0, signum)

    def _save(self, trainer: Trainer, task: Any, is_due: bool, signum: int) -> None:
        reason = signum or (_DUE if is_due else 0)
        if trainer.world_size > 1:  # all processes save, or none
            own = torch.tensor(reason, device=trainer.strategy.root_device)
            reason = int(trainer.strategy.reduce(own, reduce_op="max"))
        if not reason:
            return
        loss = task.total_loss
        if loss is not None and trainer.world_size > 1:  # all processes stop, or none
            loss = loss.to(trainer.strategy.root_device, copy=True)
            loss = trainer.strategy.reduce(loss, reduce_op="sum")
        check_finite(trainer.current_epoch + 1, loss, task)
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
