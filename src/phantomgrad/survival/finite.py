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

from phantomgrad.errors import UserError
from phantomgrad.survival.provenance import KEY
from phantomgrad.survival.randomness import generator_states

log = logging.getLogger(__name__)

_FILES, _IN_A_ROW = 5, 10
_REMEDIES = "try a smaller optimizer.lr, a smaller gradient.damping, or more solver.max_evaluations"


class FiniteSteps(Callback):
    """Looks at the gradient of every step, after all processes have added theirs, before it counts.

    One that is not finite changes no parameter. What the step was made of (batch, parameters,
    generators) is written to ``folder``, for ``scripts/replay.py``; of a run the first five.
    The look waits for the device once a step.

    Args:
        action: ``"stop"`` ends the run, ``"skip"`` leaves the step out, unless it is the tenth in
            a row; ``None`` does not look, and leaves it to :func:`check_finite`.
        folder: for the files.
        facts: of the run, as in its checkpoints.

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

    def state_dict(self) -> dict[str, Any]:
        """Return how many of the last steps were left out."""
        return {"in_a_row": self._in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self._in_a_row = state_dict["in_a_row"]

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Remember what the step starts from, but for the parameters, which it does not touch."""
        if self._action is not None:
            carried = pl_module.carried()  # type: ignore[operator]
            self._start = {"batch": batch, "generators": generator_states(), "carried": carried}

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
        told = self._tell(trainer, pl_module, start)
        if self._action == "stop":
            raise UserError(f"{told}; {_REMEDIES}, or nonfinite=skip")
        if self._in_a_row == _IN_A_ROW:
            raise UserError(f"{told}, for the {_IN_A_ROW}th time in a row; {_REMEDIES}")
        log.warning("%s; the step is left out", told)
        optimizer.zero_grad(set_to_none=True)  # what has no gradient is not stepped
        pl_module.leave_out()  # type: ignore[operator]
        pl_module.carry(start["carried"])  # type: ignore[operator]

    def _tell(self, trainer: Trainer, pl_module: LightningModule, start: dict[str, Any]) -> str:
        """Keep the step; return what has happened, and how to look at it."""
        step, rank = trainer.global_step + 1, trainer.global_rank
        path = self._folder / (f"step{step}-rank{rank}.pt" if rank else f"step{step}.pt")
        names = nonfinite_gradients(pl_module)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        happened = (
            f"the gradient of step {step} (epoch {trainer.current_epoch + 1}) is not finite in "
            f"{names[0]}{more}: nothing was updated"
        )
        if len(list(self._folder.glob("*.pt"))) >= _FILES and not path.exists():
            return happened
        self._folder.mkdir(parents=True, exist_ok=True)
        place = {"step": trainer.global_step, "epoch": trainer.current_epoch}
        content = {**start, **place, "state_dict": pl_module.state_dict(), KEY: self._facts}
        torch.save(content, path)
        return f"{happened}; python scripts/replay.py {path} makes the step again"


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
