"""What all tasks share: optimizer, schedule, pretraining, regularisation and solver statistics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from phantomgrad.checks import check_at_least, check_choice
from phantomgrad.gradients import AdaptiveDamping
from phantomgrad_suite.callbacks.capture import layers_of
from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.checkpoint.processes import of_all_processes, of_this_process
from phantomgrad_suite.tasks.means import EpochMeans
from phantomgrad_suite.tasks.regularisation import JacobianRegularisation, perturbed


class Task(LightningModule):
    """A model with its loss, optimizer and schedule.

    Training loss and solver statistics are logged as means over the epoch. After each optimizer
    step a model with a method ``project_`` is projected back to well-posed weights.

    Args:
        model, jacobian: the network, and its Jacobian regularisation.
        optimizer: called with the trainable parameters.
        schedule: called with the optimizer and, by step, with ``steps``, those of the whole run.
        schedule_by: whether the schedule advances after every ``epoch`` or every ``step``.
        clip_each: largest gradient norm of each parameter tensor on its own.
        metric: the metric that the tables report.
        evaluation_sets: names of the validation loaders, in order.
        metric_mode: whether the largest (``max``) or the smallest (``min``) value is the best.
        budget_jitter: largest random reduction of the solvers' budgets in a training step.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        schedule: Callable[..., LRScheduler] | None = None,
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
                "jacobian must be null or a complete JacobianRegularisation, as in "
                f"task=language_modelling_jr, got {jacobian!r}"
            )
        check_choice("metric_mode", metric_mode, ("max", "min"))
        check_choice("schedule_by", schedule_by, ("epoch", "step"))
        self.model = model
        self.metric, self.metric_mode = metric, metric_mode
        self.evaluation_sets = evaluation_sets
        self._optimizer, self._clip_each = optimizer, clip_each
        self._schedule, self._schedule_by = schedule, schedule_by
        self._budget_jitter, self.jacobian = budget_jitter, jacobian
        self._means = EpochMeans()
        self.steps_before = 0  # used without a trainer
        self.has_counted = True  # whether the last epoch had a step that was not left out
        self.pretrain(0, 1)

    def pretrain(self, steps: int, layers: int) -> None:
        """Unroll ``layers`` applications of the cell in the first ``steps`` optimizer steps.

        They replace solver and gradient (Bai et al., 2019 and 2020).
        """
        check_at_least("pretraining_steps", steps, 0)
        check_at_least("pretraining_layers", layers, 1)
        self._pretraining = steps, layers

    @property
    def unrolled_layers(self) -> int:
        """The applications of the cell in a step of pretraining, else 0."""
        steps, layers = self._pretraining
        return layers if self.global_step < steps else 0

    @property
    def global_step(self) -> int:
        return self.steps_before if self._trainer is None else super().global_step

    @abstractmethod
    def training_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the mean loss of a training batch and the number of samples in it."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        solves = self.unrolled_layers == 0
        jitter = self._budget_jitter if solves else 0
        jacobian = self.jacobian if solves and self.jacobian and self.jacobian.is_due() else None
        with perturbed(layers_of(self.model), jitter, jacobian) as penalties:
            loss, samples = self.training_loss(batch)
        self._means.add("train/loss", loss, samples)
        if jacobian is None or not penalties:
            return loss
        penalty, weight = torch.stack(penalties).sum(), jacobian.weight_at(self.global_step)
        self._means.add("train/jacobian", penalty)
        self._means.add("train/jacobian_weight", penalty.new_tensor(weight))
        return loss + weight * penalty

    def configure_optimizers(self) -> Any:
        optimizer = self._optimizer(p for p in self.model.parameters() if p.requires_grad)
        if self._schedule is None:
            return optimizer
        options = {}
        if self._schedule_by == "step":  # without a trainer, only the settings are checked
            options["steps"] = int(self.trainer.estimated_stepping_batches) if self._trainer else 1
        schedule = self._schedule(optimizer, **options)
        return [optimizer], [{"scheduler": schedule, "interval": self._schedule_by}]

    def on_after_backward(self) -> None:
        for name, value in solver_statistics(self.model).items():
            self._means.add(name, value)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self._clip_each is not None:
            for parameter in self.model.parameters():
                torch.nn.utils.clip_grad_norm_([parameter], self._clip_each)

    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        """Update the model and project it, so that no checkpoint comes between the two."""
        super().optimizer_step(*arguments, **options)
        self._means.settle()
        try:
            getattr(self.model, "project_", lambda: None)()
        except RuntimeError:  # a decomposition failed, most likely because of NaN weights
            check_finite(self.total_loss, self.current_epoch + 1)
            raise

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.trainer.is_last_batch:
            self.has_counted = self.total_loss is not None
            # Some are on the CPU (restored ones, dampings), where processes cannot be averaged.
            means = {name: mean.to(self.device) for name, mean in self._means.take().items()}
            self.log_dict(means, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)

    def leave_out(self) -> None:
        """Drop the values of this training step, which is skipped."""
        self._means.discard()

    @property
    def total_loss(self) -> Tensor | None:
        """The sum of the training losses of this epoch so far."""
        total, _ = self._means.settle().get("train/loss", (None, 0))
        return total

    def carried(self, batch: Any) -> dict[str, Any]:
        """Return the state that a training step on ``batch`` starts from and that is no buffer."""
        return {}

    def carry(self, carried: dict[str, Any]) -> None:
        """Start the next training step from what :meth:`carried` returned."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the sums of this epoch, of every process."""
        sums = {name: (total.cpu(), n) for name, (total, n) in self._means.settle().items()}
        checkpoint["means"] = of_all_processes(sums)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue from the sums of a checkpoint."""
        self._means.restore(of_this_process(checkpoint["means"]))


def solver_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return residual, evaluations and share of converged solves in the last pass of ``model``.

    They are means over the samples of all equilibrium layers, and those of the adjoint solves. Of
    adaptive dampings, that of the layer with the largest spectral radius is added.
    """
    layers = layers_of(model)
    statistics: dict[str, Tensor] = {}
    for prefix, found in (
        ("solver", [s for m in layers if (s := m.last_solution) is not None]),
        ("adjoint", [s for m in layers if (s := m.last_adjoint) is not None]),
    ):
        for name in ("residual", "evaluations", "converged") if found else ():
            values = torch.cat([getattr(solution, name) for solution in found])
            statistics[f"{prefix}/{name}"] = values.float().mean()
    dampings = [m for m in model.modules() if isinstance(m, AdaptiveDamping)]
    if measured := [(d.radius, d.value) for d in dampings if d.radius is not None]:
        radius, damping = max(measured)
        # In float32, which every accelerator supports.
        statistics["gradient/radius"] = torch.tensor(radius, dtype=torch.float32)
        statistics["gradient/damping"] = torch.tensor(damping, dtype=torch.float32)
    return statistics
