"""What every task shares: the optimizer, well-posedness after a step, solver statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from phantomgrad.deq import DEQ
from phantomgrad.solvers import Solution

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
ScheduleFactory = Callable[[Optimizer], LRScheduler]


class Task(LightningModule):
    """A model, its optimizer and its schedule.

    After each optimizer step the model is made well-posed again, if it knows how (``project_``).
    Residuals and evaluations of the solver and of the adjoint solver are logged, averaged over
    the equilibrium layers and, by Lightning, over the epoch.

    Args:
        model: the network.
        optimizer: makes the optimizer from the trainable parameters.
        schedule: makes the learning-rate schedule, stepped after every epoch.
        clip_each: clip the gradient norm of each parameter on its own to this value.
        metric: the name of the number the tables print.
        evaluation_sets: names of the validation loaders, in order.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: OptimizerFactory,
        schedule: ScheduleFactory | None = None,
        clip_each: float | None = None,
        metric: str = "accuracy",
        evaluation_sets: tuple[str, ...] = ("test",),
    ) -> None:
        super().__init__()
        self.model = model
        self.metric = metric
        self.evaluation_sets = evaluation_sets
        self._optimizer, self._schedule, self._clip_each = optimizer, schedule, clip_each

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the trainable parameters, and the schedule by epoch."""
        optimizer = self._optimizer(p for p in self.model.parameters() if p.requires_grad)
        if self._schedule is None:
            return optimizer
        return [optimizer], [self._schedule(optimizer)]

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
        self.log_dict(solver_statistics(self.model), on_step=False, on_epoch=True, batch_size=1)


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
