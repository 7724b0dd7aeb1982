"""Steps whose gradient is no number: never applied, and kept so that they can be made again."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer

from phantomgrad_suite.checkpoint.provenance import KEY
from phantomgrad_suite.checkpoint.randomness import generator_states
from phantomgrad_suite.checkpoint.storage import WholeCheckpointIO
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

_FILES, _IN_A_ROW = 5, 10
_REMEDIES = "try a smaller optimizer.lr, a smaller gradient.damping, or more solver.max_evaluations"


class FiniteSteps(Callback):
    """Looks at the gradient of every step, after all processes have added theirs, before it counts.

    One that is not finite changes nothing: no parameter, and no statistics that the forward pass
    has gathered. What the step started from (batch, parameters, buffers, generators) is written
    down for ``scripts/replay.py``, of the first five such steps of a process. The look waits for
    the device once a step. Under ``precision=16-mixed`` it is left to the scaler, whose first
    guesses overflow.

    Args:
        action: ``"stop"`` ends the run, ``"skip"`` leaves the step out, unless it is the tenth in
            a row; ``None`` does not look, and leaves it to :func:`check_finite`.
        folder: for the steps that are kept.
        facts: of the run, as in its checkpoints (:class:`Provenance`).

    Raises:
        ValueError: there is no such action.
    """

    def __init__(
        self, action: Literal["stop", "skip"] | None, folder: Path, facts: dict[str, Any]
    ) -> None:
        if action not in ("stop", "skip", None):
            raise ValueError(f"nonfinite must be stop, skip or null, got {action!r}")
        self._action, self._folder, self._facts = action, folder, facts
        self._start: dict[str, Any] = {}
        self._in_a_row = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave it to the scaler, where there is one."""
        if trainer.precision == "16-mixed":
            self._action = None

    def state_dict(self) -> dict[str, Any]:
        """Return how many of the last steps were left out."""
        return {"in_a_row": self._in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self._in_a_row = state_dict["in_a_row"]

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Remember what the step starts from, but for the parameters: it does not touch them."""
        if self._action is not None:
            self._start = {
                "batch": batch,
                "generators": generator_states(),
                "carried": pl_module.carried(batch),  # type: ignore[operator]
                "buffers": buffers(pl_module),
            }

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Look at the gradient.

        Raises:
            UserError: it is not finite, and the run is to stop at that.
        """
        if self._action is None:
            return
        start, self._start = self._start, {}
        if gradients_are_finite(pl_module):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        told = self._keep_and_tell(trainer, pl_module, start)
        if self._action == "stop":
            raise UserError(f"{told}; {_REMEDIES}, or nonfinite=skip, which is a run of its own")
        if self._in_a_row == _IN_A_ROW:
            raise UserError(f"{told}, for the {_IN_A_ROW}th time in a row; {_REMEDIES}")
        log.warning("%s; the step is left out", told)
        optimizer.zero_grad(set_to_none=True)  # what has no gradient is not stepped
        pl_module.leave_out()  # type: ignore[operator]
        pl_module.carry(start["carried"])  # type: ignore[operator]
        pl_module.load_state_dict(start["buffers"], strict=False)

    def _keep_and_tell(
        self, trainer: Trainer, pl_module: LightningModule, start: dict[str, Any]
    ) -> str:
        """Keep the step; return what has happened, and how to look at it."""
        step, rank = trainer.global_step + 1, trainer.global_rank
        names = nonfinite_gradients(pl_module)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        happened = (
            f"the gradient of step {step} (epoch {trainer.current_epoch + 1}) is not finite in "
            f"{names[0]}{more}: nothing was updated"
        )
        if len(list(self._folder.glob(f"step*-rank{rank}.pt"))) >= _FILES:
            return happened
        path = self._folder / f"step{step}-rank{rank}.pt"
        state = {**pl_module.state_dict(), **start["buffers"]}
        place = {"step": step - 1, "device": str(pl_module.device)}
        try:
            WholeCheckpointIO().save_checkpoint(
                {**start, **place, "state_dict": state, KEY: self._facts}, path
            )
        except OSError as error:  # a note must not end a run
            return f"{happened}, nor could the step be kept ({error})"
        return f"{happened}; python scripts/replay.py {path} makes the step again"


def buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of what ``module`` has in its state besides parameters."""
    # Of a tied parameter each name is one.
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    state = module.state_dict()
    return {name: state[name].clone() for name in state.keys() - parameters}


def gradients_are_finite(module: nn.Module) -> bool:
    """Return whether the gradient of every parameter is; an answer the device is waited for."""
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    # The largest entry: a norm could overflow where no entry has.
    return math.isfinite(float(torch.nn.utils.get_total_norm(gradients, math.inf)))


def nonfinite_gradients(module: nn.Module) -> list[str]:
    """Return the names of the parameters whose gradient is not finite."""
    return [
        name
        for name, p in module.named_parameters()
        if p.grad is not None and not bool(p.grad.isfinite().all())
    ]


def check_finite(loss: Tensor | None, epoch: int) -> None:
    """Refuse to go on with a training loss that is no number.

    Raises:
        UserError: it is not finite.
    """
    if loss is not None and not bool(loss.isfinite()):
        raise UserError(
            f"the training loss is {float(loss)} in epoch {epoch}: no checkpoint was "
            f"written since; {_REMEDIES}"
        )
