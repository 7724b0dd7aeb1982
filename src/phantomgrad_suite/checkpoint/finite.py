"""NaN and infinite numbers end a run before they reach its parameters or a checkpoint."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from phantomgrad_suite.runs.errors import UserError


class Diverged(UserError):
    """NaN or infinity in a gradient, a loss or a weight: an outcome of the run, for its record."""


class FiniteSteps(Callback):
    """Stops the run before an optimizer step whose gradient is NaN or infinite.

    The check synchronises with the device once a step. Under ``precision=16-mixed`` it is left to
    the gradient scaler, whose first scales overflow.
    """

    def __init__(self) -> None:
        self._loss: Any = math.nan

    @property
    def loss(self) -> float:
        """The mean training loss of the epoch, up to the last step that was made."""
        return float(self._loss)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._loss = pl_module.mean_loss

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Any
    ) -> None:
        gradients = {n: p.grad for n, p in pl_module.named_parameters() if p.grad is not None}
        if trainer.precision == "16-mixed" or not (names := nonfinite(gradients)):
            return
        raise Diverged(
            f"the gradient of step {trainer.global_step + 1} (epoch {trainer.current_epoch + 1}) "
            f"is not finite in {names}"
        )


def nonfinite(tensors: Mapping[str, Tensor]) -> str:
    """Return the names of the tensors with NaN or infinite entries, shortened; usually empty."""
    floating = [tensor for tensor in tensors.values() if tensor.is_floating_point()]
    # The largest entry, since a 2-norm could overflow where no entry has.
    if torch.nn.utils.get_total_norm(floating, math.inf).isfinite():
        return ""
    names = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def check_finite(epoch: int, loss: Tensor | None, model: nn.Module) -> None:
    """Raise :class:`Diverged` if the training loss or a parameter of ``model`` is not finite."""
    if loss is not None and not loss.isfinite():
        raise Diverged(f"the training loss is {float(loss)} in epoch {epoch}")
    if names := nonfinite(dict(model.named_parameters())):
        raise Diverged(f"weights are not finite in epoch {epoch}, in {names}")
