"""The place of the training loader in checkpoints."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer


class LoaderPlace(Callback):
    """Saves where the training loader is, and puts it back there before training.

    Lightning does so as well, but not where the number of steps was asked for before (by a
    learning rate that follows it), and not at the end of an epoch: a loader with ``spans_epochs``
    goes on there, as a text does.
    """

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._restored: dict[str, Any] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remember whose loader it is."""
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader, nothing of a loader without one."""
        trainer = self._trainer
        loader: Any = trainer.train_dataloader if trainer else None
        if trainer is None or not knows_its_place(loader):
            return {}
        return {"loader": loader.state_dict(), "epoch_is_over": bool(trainer.is_last_batch)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until training starts."""
        self._restored = state_dict

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the state of a checkpoint: no batch was taken before."""
        restored, self._restored = self._restored, None
        loader: Any = trainer.train_dataloader
        if not restored or not knows_its_place(loader):
            return
        if getattr(loader, "spans_epochs", False) or not restored["epoch_is_over"]:
            loader.load_state_dict(restored["loader"])


def knows_its_place(loader: Any) -> bool:
    """Return whether a loader can be put back to where it was."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
