"""The weights that a finished run keeps: of its last epoch, and of the epoch that it selects."""

import hashlib
import io
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from phantomgrad_suite.callbacks.curves import History
from phantomgrad_suite.runs.files import write_file


class KeptWeights(Callback):
    """Copies the model at the selected epoch, or at the best one without validation data.

    Checkpoints hold the copy, so that the weights of a resumed run belong to its curves even where
    repeated epochs give other numbers (on a GPU). Files are written once, by :meth:`write`.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._evaluated: dict[str, Any] = {}
        self._chosen: dict[str, Any] = {}

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Callbacks that average weights put them in place for evaluations, or after the training.
        self._evaluated = self._copy(pl_module, self._history.epochs + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        task: Any = pl_module
        evaluated = f"test/{task.metric}" in self._history.curves
        if evaluated and self._choice(task)[1] == self._history.epochs:
            self._chosen = self._evaluated

    def write(self, task: Any, folder: Path) -> dict[str, dict[str, Any]]:
        """Write ``last.pt``, and ``selected.pt`` or ``best.pt``; return the record's entries."""
        name, epoch = self._choice(task)
        # None was evaluated here if an earlier attempt was killed between its last epoch and this.
        copies = {"last": self._evaluated or self._copy(task, self._history.epochs)}
        if self._chosen.get("epoch") == epoch:  # not if earlier attempts kept none
            copies[name] = self._chosen
        return {name: _write(copy, folder, f"weights/{name}.pt") for name, copy in copies.items()}

    def state_dict(self) -> dict[str, Any]:
        return self._chosen

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._chosen = state_dict

    def _choice(self, task: Any) -> tuple[str, int]:
        result = self._history.result(task.metric, task.metric_mode)
        if result.selected_epoch is None:
            return "best", result.best_epoch
        return "selected", result.selected_epoch

    def _copy(self, task: Any, epoch: int) -> dict[str, Any]:
        weights = {
            name: value.to("cpu", copy=True) if isinstance(value, Tensor) else value
            for name, value in task.evaluated.state_dict().items()
        }
        return {"epoch": epoch, "step": task.global_step, "weights": weights}


def _write(copy: dict[str, Any], folder: Path, file: str) -> dict[str, Any]:
    content = io.BytesIO()
    torch.save(copy["weights"], content)  # in memory: on a full disk torch raises no OSError
    write_file(folder / file, content.getbuffer())
    checksum = hashlib.sha256(content.getbuffer()).hexdigest()
    return {"file": file, "sha256": checksum, "epoch": copy["epoch"], "step": copy["step"]}
