"""What every task shares: the optimizer, well-posedness after a step, solver statistics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from phantomgrad.checks import check_at_least
from phantomgrad.deq import DEQ
from phantomgrad.gradients import AdaptiveDamping
from phantomgrad.solvers import Solution
from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.tasks.means import EpochMeans
from phantomgrad_suite.tasks.pretraining import Pretraining
from phantomgrad_suite.tasks.regularisation import JacobianRegularisation, jittered, penalised

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
        metric_mode: which end of it is the good one.
        budget_jitter: each training step spends up to so many evaluations less in its solves.
        jacobian: the penalty on the Jacobian of the equilibrium layers.
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
        *,
        metric_mode: Literal["max", "min"] = "max",
        budget_jitter: int = 0,
        jacobian: JacobianRegularisation | None = None,
    ) -> None:
        super().__init__()
        check_at_least("budget_jitter", budget_jitter, 0)
        if not isinstance(jacobian, JacobianRegularisation | None):
            raise ValueError(
                "jacobian must be a whole penalty, as task=language_modelling_jr has it, "
                f"or none, got {jacobian!r}"
            )
        if metric_mode not in ("max", "min"):
            raise ValueError(f"metric_mode must be 'max' or 'min', got {metric_mode!r}")
        if schedule_by not in ("epoch", "step"):
            raise ValueError(f"schedule_by must be 'epoch' or 'step', got {schedule_by!r}")
        self.model = model
        self.metric = metric
        self.metric_mode = metric_mode
        self.evaluation_sets = evaluation_sets
        self._optimizer, self._clip_each = optimizer, clip_each
        self._schedule, self._schedule_by = schedule, schedule_by
        self._means = EpochMeans()
        self._budget_jitter, self.jacobian = budget_jitter, jacobian
        self.pretraining = Pretraining()
        self.steps_before = 0
        self.has_counted = True  # in the last epoch; not if all of its steps were left out

    @property
    def global_step(self) -> int:
        """The optimizer steps so far: the trainer's or, without one, ``steps_before``."""
        return self.steps_before if self._trainer is None else super().global_step

    @abstractmethod
    def training_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the mean loss of a training batch, and over how many samples it is the mean."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss, with the penalty on the Jacobian where it is due."""
        layers = [m for m in self.model.modules() if isinstance(m, DEQ)]
        solves = not self.pretraining.layers_at(self.global_step)
        by = self.jacobian if solves and self.jacobian and self.jacobian.is_due() else None
        jitter = self._budget_jitter if solves else 0
        with jittered(layers, jitter), penalised(layers, by) as penalties:
            loss, samples = self.training_loss(batch)
        self.keep("train/loss", loss, samples)
        if by is None or not penalties:
            return loss
        penalty, weight = torch.stack(penalties).sum(), by.weight_at(self.global_step)
        self.keep("train/jacobian", penalty)
        self.keep("train/jacobian_weight", penalty.new_tensor(weight))
        return loss + weight * penalty

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

    def keep(self, name: str, value: Tensor, weight: float = 1) -> None:
        """Count a number of this training step into its mean over the epoch, which is logged."""
        self._means.add(name, value, weight)

    def leave_out(self) -> None:
        """Count nothing of this training step: it is not made."""
        self._means.leave_out()

    def carried(self, batch: Any) -> dict[str, Any]:
        """Return what a training step on ``batch`` starts from that is no parameter or buffer."""
        return {}

    def carry(self, carried: dict[str, Any]) -> None:
        """Start the next training step from what :meth:`carried` has returned."""

    @property
    def total_loss(self) -> Tensor | None:
        """The sum of the training losses of this epoch so far."""
        return self._means.total("train/loss")

    def on_after_backward(self) -> None:
        """Count what the solvers found."""
        for name, value in solver_statistics(self.model).items():
            self.keep(name, value)

    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        """Make a step, and the model well-posed again: no checkpoint comes between the two."""
        super().optimizer_step(*arguments, **options)
        self._means.settle()
        project = getattr(self.model, "project_", None)
        if project is None:
            return
        try:
            project()
        except RuntimeError:  # of a decomposition
            check_finite(self.total_loss, self.current_epoch + 1)  # the likely cause, in words
            raise

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log the means, at the last batch of an epoch."""
        if self.trainer.is_last_batch:
            self.has_counted = self.total_loss is not None
            # Over processes only what is on their devices can be averaged: what a checkpoint has
            # left, and the numbers of an adaptive damping, are on the CPU.
            means = {name: mean.to(self.device) for name, mean in self._means.take().items()}
            self.log_dict(means, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the means so far, of every process."""
        means = self._means.state_dict()
        totals = {name: self.of_all_processes(total) for name, total in means["totals"].items()}
        checkpoint["means"] = {**means, "totals": totals}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from the means of a checkpoint, where it has some."""
        if "means" in checkpoint:
            means = checkpoint["means"]
            own = {name: t.view(-1)[self.global_rank] for name, t in means["totals"].items()}
            self._means.load_state_dict({**means, "totals": own})

    def of_all_processes(self, part: Tensor) -> Tensor:
        """Return what each process has, ``(processes, ...)``, on the CPU."""
        gathered = self.all_gather(part.to(self.device))  # a checkpoint has left it on the CPU
        assert isinstance(gathered, Tensor)
        return (gathered if gathered.dim() > part.dim() else gathered[None]).cpu()


def solver_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return means over the equilibrium layers of ``model``, of their last pass.

    Where the damping of a gradient follows the model, also that of the layer with the largest
    spectral radius, and this radius.
    """
    layers = [m for m in model.modules() if isinstance(m, DEQ)]
    statistics: dict[str, Tensor] = {}
    for prefix, solutions in (
        ("solver", [m.last_solution for m in layers]),
        ("adjoint", [m.last_adjoint for m in layers]),
    ):
        found = [s for s in solutions if s is not None]
        if found:
            statistics |= {f"{prefix}/{k}": v for k, v in _means(found).items()}
    return statistics | _damping(model)


def _means(solutions: list[Solution]) -> dict[str, Tensor]:
    return {
        "residual": torch.cat([s.residual for s in solutions]).float().mean(),
        "evaluations": torch.cat([s.evaluations for s in solutions]).float().mean(),
        "converged": torch.cat([s.converged for s in solutions]).float().mean(),
    }


def _damping(model: nn.Module) -> dict[str, Tensor]:
    dampings = [m for m in model.modules() if isinstance(m, AdaptiveDamping)]
    radii = [d.radius for d in dampings if d.radius is not None]
    if not radii:
        return {}
    # In float32, which every accelerator knows.
    return {
        "gradient/radius": torch.tensor(max(radii), dtype=torch.float32),
        "gradient/damping": torch.tensor(min(d.value for d in dampings), dtype=torch.float32),
    }
