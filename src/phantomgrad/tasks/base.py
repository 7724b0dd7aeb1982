"""What every task shares: the optimizer, well-posedness after a step, solver statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from phantomgrad.deq import DEQ
from phantomgrad.solvers import Solution

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
ScheduleFactory = Callable[..., LRScheduler]
"""From an optimizer, and by step from the number of ``steps`` of the whole run."""


class Task(LightningModule):
    """A model, its optimizer and its schedule.

    After each optimizer step the model is made well-posed again, if it knows how (``project_``).
    Residuals and evaluations of the solver and of the adjoint solver are logged, averaged over
    the equilibrium layers and, by Lightning, over the epoch.

    Args:
        model: the network.
        optimizer: makes the optimizer from the trainable parameters.
        schedule: makes the learning-rate schedule.
        schedule_by: when it moves on: after every ``epoch``, or every ``step``, where it is also
            told the ``steps`` of the whole run.
        clip_each: clip the gradient norm of each parameter on its own to this value.
        metric: the name of the number the tables print.
        evaluation_sets: names of the validation loaders, in order.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: OptimizerFactory,
        schedule: ScheduleFactory | None = None,
        schedule_by: Literal["epoch", "step"] = "epoch",
        clip_each: float | None = None,
        metric: str = "accuracy",
        evaluation_sets: tuple[str, ...] = ("test",),
    ) -> None:
        super().__init__()
        if schedule_by not in ("epoch", "step"):
            raise ValueError(f"schedule_by must be 'epoch' or 'step', got {schedule_by!r}")
        self.model = model
        self.metric = metric
        self.evaluation_sets = evaluation_sets
        self._optimizer, self._clip_each = optimizer, clip_each
        self._schedule, self._schedule_by = schedule, schedule_by

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the trainable parameters, and its schedule."""
        optimizer = self._optimizer(p for p in self.model.parameters() if p.requires_grad)
        if self._schedule is None:
            return optimizer
        told = {"steps": self._total_steps()} if self._schedule_by == "step" else {}
        schedule = self._schedule(optimizer, **told)
        return [optimizer], [{"scheduler": schedule, "interval": self._schedule_by}]

    def _total_steps(self) -> int:
        """Return the optimizer steps of the whole run; 1 where no trainer knows them yet."""
        attached = self._trainer is not None
        return int(self.trainer.estimated_stepping_batches) if attached else 1

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Clip each parameter's gradient, where asked."""
        if self._clip_each is not None:
            for parameter in self.model.parameters():
                torch.nn.utils.clip_grad_norm_([parameter], self._clip_each)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Make the model well-posed again, and log what the solvers found."""
        project = getattr(self.model, "project_", None)
        if project is not None:
            project()
        self.log_dict(
            solver_statistics(self.model),
            on_step=False,
            on_epoch=True,
            batch_size=1,
            sync_dist=True,
        )


def solver_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return means over the equilibrium layers of ``model``, of their last pass."""
    layers = [m for m in model.modules() if isinstance(m, DEQ)]
    statistics: dict[str, Tensor] = {}
    for prefix, solutions in (
        ("solver", [m.last_solution for m in layers]),
        ("adjoint", [m.last_adjoint for m in layers]),
    ):
        found = [s for s in solutions if s is not None]
        if found:
            statistics |= {f"{prefix}/{k}": v for k, v in _means(found).items()}
    return statistics


def _means(solutions: list[Solution]) -> dict[str, Tensor]:
    return {
        "residual": torch.cat([s.residual for s in solutions]).float().mean(),
        "evaluations": torch.cat([s.evaluations for s in solutions]).float().mean(),
        "converged": torch.cat([s.converged for s in solutions]).float().mean(),
    }
