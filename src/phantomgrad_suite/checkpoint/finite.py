"""Steps with a NaN or infinite gradient: never applied, and kept so that they can be replayed."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer

from phantomgrad_suite.checkpoint.state import PROVENANCE, generator_states
from phantomgrad_suite.checkpoint.storage import WholeCheckpointIO
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

_FILES, _IN_A_ROW = 5, 10
_REMEDIES = "try a smaller optimizer.lr, a smaller gradient.damping, or more solver.max_evaluations"


class FiniteSteps(Callback):
    """Checks the gradient of every step, summed over the processes, before the optimizer step.

    A NaN or infinite gradient changes nothing: no parameter, and no statistic that the forward
    pass has updated. What the step started from (batch, parameters, buffers, generators) is kept
    for ``scripts/replay.py``, for the first five such steps of a process. The check synchronises
    with the device once a step. Under ``precision=16-mixed`` it is left to the gradient scaler,
    whose first scales overflow.

    Args:
        action: ``"stop"`` ends the run; ``"skip"`` leaves the step out, unless it is the tenth in
            a row; ``None`` checks nothing.
        folder: for the steps that are kept.
        facts: about the run, as in its checkpoints (:class:`RunState`).
    """

    def __init__(
        self, action: Literal["stop", "skip"] | None, folder: Path, facts: dict[str, Any]
    ) -> None:
        self._action, self._folder, self._facts = action, folder, facts
        self._start: dict[str, Any] = {}
        self._in_a_row = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the check to the gradient scaler if there is one."""
        if trainer.precision == "16-mixed":
            self._action = None

    def state_dict(self) -> dict[str, Any]:
        """Return how many of the last steps were left out."""
        return {"in_a_row": self._in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue counting."""
        self._in_a_row = state_dict["in_a_row"]

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Remember what the step starts from, except the parameters, which it does not change."""
        if self._action is None:
            return
        parameters = {name for name, _ in pl_module.named_parameters(remove_duplicate=False)}
        state = pl_module.state_dict()
        self._start = {
            "batch": batch,
            "generators": generator_states(),
            "carried": pl_module.carried(batch),
            "buffers": {name: state[name].clone() for name in state.keys() - parameters},
        }

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: Any, optimizer: Optimizer
    ) -> None:
        """Check the gradient.

        Raises:
            UserError: it is not finite, and ``action`` or the number of such steps ends the run.
        """
        if self._action is None:
            return
        start, self._start = self._start, {}
        if gradients_are_finite(pl_module):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        names = nonfinite_gradients(pl_module)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        found = (
            f"the gradient of step {trainer.global_step + 1} (epoch {trainer.current_epoch + 1}) "
            f"is not finite in {names[0]}{more}: nothing was updated"
            f"{self._keep(trainer, pl_module, start)}"
        )
        if self._action == "stop":
            raise UserError(f"{found}; {_REMEDIES}, or nonfinite=skip, which is a run of its own")
        if self._in_a_row == _IN_A_ROW:
            raise UserError(f"{found}, for the {_IN_A_ROW}th time in a row; {_REMEDIES}")
        log.warning("%s; the step is left out", found)
        optimizer.zero_grad(set_to_none=True)  # parameters without a gradient are not updated
        pl_module.leave_out()
        pl_module.carry(start["carried"])
        pl_module.load_state_dict(start["buffers"], strict=False)

    def _keep(self, trainer: Trainer, task: LightningModule, start: dict[str, Any]) -> str:
        """Keep the step in a file, unless there are enough; return a remark on it."""
        step, rank = trainer.global_step, trainer.global_rank
        if len(list(self._folder.glob(f"step*-rank{rank}.pt"))) >= _FILES:
            return ""
        path = self._folder / f"step{step + 1}-rank{rank}.pt"
        content = {
            **start,
            "step": step,
            "device": str(task.device),
            "state_dict": {**task.state_dict(), **start["buffers"]},
            PROVENANCE: self._facts,
        }
        try:
            WholeCheckpointIO().save_checkpoint(content, path)
        except OSError as error:  # which must not end a run that would skip the step
            return f", and the step could not be kept ({error})"
        return f"; python scripts/replay.py {path} replays the step"


def gradients_are_finite(module: nn.Module) -> bool:
    """Return whether every gradient is finite; waits for the device."""
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    # The largest entry, since a 2-norm could overflow where no entry has.
    return math.isfinite(float(torch.nn.utils.get_total_norm(gradients, math.inf)))


def nonfinite_gradients(module: nn.Module) -> list[str]:
    """Return the names of the parameters whose gradient is not finite."""
    gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    return [name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())]


def check_finite(loss: Tensor | None, epoch: int) -> None:
    """Raise :class:`UserError` if the training loss is NaN or infinite."""
    if loss is not None and not bool(loss.isfinite()):
        raise UserError(
            f"the training loss is {float(loss)} in epoch {epoch}: no checkpoint was "
            f"written since; {_REMEDIES}"
        )
