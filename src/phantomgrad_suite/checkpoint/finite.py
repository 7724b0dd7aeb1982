"""NaN and infinite numbers end a run before they reach its parameters or a checkpoint."""

import math
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from phantomgrad_suite.runs.errors import UserError

_REMEDIES = "try a smaller optimizer.lr, a smaller gradient.damping, or more solver.max_evaluations"


class FiniteSteps(Callback):
    """Stops the run before an optimizer step whose gradient is NaN or infinite.

    The check synchronises with the device once a step. Under ``precision=16-mixed`` it is left to
    the gradient scaler, whose first scales overflow.
    """

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Any
    ) -> None:
        gradients = {n: p.grad for n, p in pl_module.named_parameters() if p.grad is not None}
        # The largest entry, since a 2-norm could overflow where no entry has.
        largest = torch.nn.utils.get_total_norm(gradients.values(), math.inf)
        if trainer.precision == "16-mixed" or largest.isfinite():
            return
        names = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise UserError(
            f"the gradient of step {trainer.global_step + 1} (epoch {trainer.current_epoch + 1}) "
            f"is not finite in {names[0]}{more}: nothing was updated. The same command with "
            "+runtime.trainer.detect_anomaly=true resumes from the last checkpoint and shows "
            f"where it arose; to avoid it, {_REMEDIES}"
        )


def check_finite(loss: Tensor | None, epoch: int) -> None:
    """Raise :class:`UserError` if the training loss is NaN or infinite."""
    if loss is not None and not loss.isfinite():
        raise UserError(
            f"the training loss is {float(loss)} in epoch {epoch}: no checkpoint was "
            f"written since; {_REMEDIES}"
        )
