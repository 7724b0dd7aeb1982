"""Checkpoints that are whole, and that do not wait for the end of a long epoch."""

from __future__ import annotations

import io
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO

from phantomgrad.callbacks.history import check_finite
from phantomgrad.callbacks.place import knows_its_place

_STEPS_BETWEEN_QUESTIONS = 10


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, and moves it there in one step.

    Lightning's own way is through the system's temporary folder. Where that is another disk, the
    move is a copy, and a copy cut short stands where the last good checkpoint stood.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write ``checkpoint`` to ``path``, or raise and leave ``path`` as it is."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        try:
            with part.open("wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


class TimedCheckpoint(Callback):
    """Saves a checkpoint in the middle of an epoch, whenever so much time has passed.

    What resumes from it is the uninterrupted run: the task keeps its means, the loader its place.
    A loader that does not know its place is left alone; its run has the checkpoints of its epochs.
    Stands behind all callbacks that keep a state.

    Args:
        path: of the checkpoint.
        minutes: between two of them; 0 for one after every step (in a distributed run after every
            tenth), ``None`` for none.

    Raises:
        ValueError: ``minutes`` is negative.
    """

    def __init__(self, path: Path, minutes: float | None) -> None:
        minutes = math.inf if minutes is None else minutes
        if not minutes >= 0:
            raise ValueError(f"minutes must not be negative, got {minutes}")
        self._path, self._seconds = path, 60 * minutes
        self._last = time.monotonic()

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
        """
        resumable = knows_its_place(trainer.train_dataloader) and not trainer.is_last_batch
        if resumable and self._is_due(trainer, batch_idx):
            check_finite(getattr(pl_module, "total_loss", None), trainer.current_epoch + 1)
            trainer.save_checkpoint(self._path)
            self._last = time.monotonic()

    def _is_due(self, trainer: Trainer, batch_idx: int) -> bool:
        due = time.monotonic() - self._last >= self._seconds
        if trainer.world_size == 1 or self._seconds == math.inf:
            return due
        # All processes save, or none; asking makes the device wait, so it is not done every time.
        return batch_idx % _STEPS_BETWEEN_QUESTIONS == 0 and trainer.strategy.broadcast(due)
