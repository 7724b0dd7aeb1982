"""What all tasks share: optimizer, schedule, pretraining, regularisation and solver statistics."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any, Literal

import torch
from lightning import LightningModule
from lightning.pytorch.overrides.distributed import UnrepeatedDistributedSampler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from phantomgrad.checks import check_at_least, check_choice
from phantomgrad.gradients import AdaptiveDamping
from phantomgrad.solvers import IterativeSolver
from phantomgrad_suite.callbacks.capture import layers_of
from phantomgrad_suite.checkpoint.distributed import of_all_processes, of_this_process
from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.runs.errors import SettingError
from phantomgrad_suite.runs.lengths import check_length, in_steps
from phantomgrad_suite.tasks.regularisation import Regularisation, perturbed


class Task(LightningModule):
    """A model with its loss, optimizer and schedule.

    After each optimizer step a model with a method ``project_`` is projected to well-posed weights.

    Args:
        model: called by :meth:`training_loss` through :meth:`apply_model`.
        optimizer: called with the trainable parameters.
        schedule: called with the optimizer; with ``schedule_by="step"`` also with ``steps``, the
            number of optimizer steps of the whole run.
        schedule_by: whether the schedule advances after each ``epoch`` or each ``step``.
        clip_each: largest gradient norm of each parameter tensor, clipped one by one.
        metric, metric_mode: what the tables report, and whether its ``max`` or ``min`` is best.
        evaluation_sets: names of the validation loaders, in their order.
        budget_jitter: largest random reduction of the solvers' budgets in a training step.
        jacobian: a penalty at the equilibria, if any: on the Jacobian or another one.
    """

    batch_type: type | tuple[type, ...] = object

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
        jacobian: Regularisation | None = None,
    ) -> None:
        super().__init__()
        check_at_least("budget_jitter", budget_jitter, 0)
        layers = layers_of(model)
        if budget_jitter and not any(isinstance(x.solver, IterativeSolver) for x in layers):
            raise ValueError(
                f"budget_jitter must be 0 where no solver has max_evaluations, got {budget_jitter}"
            )
        if not isinstance(jacobian, Regularisation | None):
            raise ValueError(
                "jacobian must be null or a complete Regularisation, as in "
                f"task=language_modelling_jr, got {jacobian!r}"
            )
        if jacobian is not None and not layers:
            raise ValueError("jacobian must be null for a model without equilibrium layers")
        check_choice("metric_mode", metric_mode, ("max", "min"))
        check_choice("schedule_by", schedule_by, ("epoch", "step"))
        self.model = model
        self.metric, self.metric_mode = metric, metric_mode
        self.evaluation_sets = evaluation_sets
        self._optimizer, self._clip_each = optimizer, clip_each
        self._schedule, self._by_step = schedule, schedule_by == "step"
        self._budget_jitter, self.jacobian = budget_jitter, jacobian
        # Of this epoch: weighted values and their weights. Unlike Lightning's, they are saved.
        self._sums: dict[str, tuple[Tensor, float]] = {}
        self._means: dict[str, Tensor] = {}  # of the epoch before
        self.pretrain(0, 1)

    def pretrain(self, steps: int | float, layers: int) -> None:
        """Unroll ``layers`` applications of the cell, without solver, in the first ``steps``.

        A float is a share of all steps, which are known when the training starts.
        """
        check_length("pretraining_steps", steps)
        check_at_least("pretraining_layers", layers, 1)
        self._pretraining = steps, layers

    @property
    def evaluated(self) -> nn.Module:
        """The model with the weights of evaluation."""
        return self.model

    @property
    def unrolled_layers(self) -> int:
        """The applications of the cell in a step of pretraining, else 0."""
        steps, layers = self._pretraining
        return layers if self.global_step < steps else 0

    @abstractmethod
    def training_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the mean loss of a training batch and the number of samples in it."""

    def on_train_start(self) -> None:
        """Turn shares of the training into steps; raise :class:`SettingError` for bad batches."""
        steps, layers = self._pretraining
        self._pretraining = in_steps(steps, self.trainer.estimated_stepping_batches), layers
        if self.jacobian:
            self.jacobian = self.jacobian.over(self.trainer.estimated_stepping_batches)
        batches = self.trainer.num_training_batches
        if self.trainer.accumulate_grad_batches > batches:
            raise SettingError(
                "trainer.accumulate_grad_batches must be at most the number of batches in an epoch,"
                f" {batches}, got {self.trainer.accumulate_grad_batches}"
            )
        found = self.trainer.val_dataloaders
        loaders = [] if found is None else found if isinstance(found, Sequence) else [found]
        if loaders and len(loaders) != len(self.evaluation_sets):
            raise SettingError(
                "val_dataloader must return a loader for each of its evaluation_sets, "
                f"{', '.join(self.evaluation_sets)}, got {len(loaders)}"
            )
        for loader in loaders:
            sampler: Any = getattr(loader, "sampler", None)
            size, total = len(getattr(sampler, "dataset", ())), getattr(sampler, "total_size", 0)
            if size and total % size and not isinstance(sampler, UnrepeatedDistributedSampler):
                raise SettingError(
                    f"the number of processes must divide the {size} samples or batches of an "
                    f"evaluation, got {self.trainer.world_size}: some would be counted twice "
                    "(set trainer.devices)"
                )

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if not isinstance(batch, self.batch_type):
            raise SettingError(
                f"{type(self).__name__} cannot use batches of type {type(batch).__name__}: "
                "choose a task=... that fits dataset=... (configs/task)"
            )

    def apply_model(self, *inputs: Any, **options: Any) -> Any:
        """Call the model, or raise :class:`UserError` if it takes other inputs."""
        try:
            signature(self.model.forward).bind(*inputs, **options)
        except TypeError as error:
            raise SettingError(
                f"{type(self.model).__name__} does not take the inputs of {type(self).__name__} "
                f"({error}): choose a model=... that fits task=..."
            ) from error
        return self.model(*inputs, **options)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        solves = self.unrolled_layers == 0
        jitter = self._budget_jitter if solves else 0
        jacobian = self.jacobian if solves and self.jacobian and self.jacobian.is_due() else None
        with perturbed(layers_of(self.model), jitter, jacobian) as penalties:
            loss, samples = self.training_loss(batch)
        self._add("train/loss", loss, samples)
        if jacobian is None or not penalties:
            return loss
        weight = jacobian.weight_at(self.global_step)
        penalty = torch.stack([*penalties.values()]).sum()
        self._add(f"train/{jacobian.name}", penalty)
        self._add(f"train/{jacobian.name}_weight", torch.full_like(penalty, weight))
        return loss + weight * penalty

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer_of(self.model.parameters())
        known = self._by_step and self._trainer  # throughput is measured without a trainer
        schedule = self.schedule_of(
            optimizer, int(self.trainer.estimated_stepping_batches) if known else 1
        )
        if schedule is None:
            return optimizer
        interval = "step" if self._by_step else "epoch"
        return [optimizer], [{"scheduler": schedule, "interval": interval}]

    def optimizer_of(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the optimizer of those parameters that are trained."""
        return self._optimizer(p for p in parameters if p.requires_grad)

    def schedule_of(self, optimizer: Optimizer, steps: int) -> LRScheduler | None:
        """Return the schedule of a run of so many ``steps``, if the task has one."""
        if self._schedule is None:
            return None
        try:
            return self._schedule(optimizer, **({"steps": steps} if self._by_step else {}))
        except TypeError as error:
            if "argument: 'steps'" not in str(error):
                raise
            raise SettingError(f"{error}: it needs task.schedule_by=step") from error

    def on_after_backward(self) -> None:
        for name, value in solver_statistics(self.model).items():
            self._add(name, value)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients).float()
        # Before clipping; that of a step which the scaler of 16-mixed skips counts as 0.
        self._add("gradient/norm", norm.nan_to_num(posinf=0))
        if self._clip_each is not None:
            for parameter in self.model.parameters():
                torch.nn.utils.clip_grad_norm_([parameter], self._clip_each)

    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        """Update the model and project it, so that no checkpoint comes between the two."""
        super().optimizer_step(*arguments, **options)
        try:
            getattr(self.model, "project_", lambda: None)()
        except RuntimeError:  # a decomposition of NaN weights
            check_finite(self.current_epoch + 1, self.total_loss, self)
            raise

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.trainer.is_last_batch:
            means = self.take_means()
            self.log_dict(means, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)

    def _add(self, name: str, value: Tensor, weight: float = 1) -> None:
        total = value.detach() * weight
        if name in self._sums:
            before, weights = self._sums[name]
            total, weight = before.to(total.device) + total, weights + weight
        self._sums[name] = total, weight

    def take_means(self) -> dict[str, Tensor]:
        """Return the means and start a new epoch; what only earlier epochs had is ``nan``."""
        missing = {name: torch.full_like(mean, math.nan) for name, mean in self._means.items()}
        # Some are on the CPU (restored ones, dampings), where processes cannot be averaged.
        means = {name: (total / n).to(self.device) for name, (total, n) in self._sums.items()}
        self._sums, self._means = {}, missing | means
        return self._means

    @property
    def mean_loss(self) -> Tensor | float:
        total, weight = self._sums.get("train/loss", (math.nan, 1))
        return total / weight

    @property
    def total_loss(self) -> Tensor | None:
        return self._sums.get("train/loss", (None, 0))[0]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        sums = {name: (total.cpu(), n) for name, (total, n) in self._sums.items()}
        checkpoint["means"] = of_all_processes(sums)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._sums = of_this_process(checkpoint["means"])


def solver_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return the means of the last pass: residual, evaluations, convergence, distance from z0.

    Of adaptive dampings, that of the layer with the largest spectral radius is added.
    """
    layers = layers_of(model)
    statistics: dict[str, Tensor] = {}
    for prefix, solves in (
        ("solver", [layer.last_solution for layer in layers]),
        ("adjoint", [layer.last_adjoint for layer in layers]),
    ):
        found = [solve for solve in solves if solve is not None]
        for name in ("residual", "evaluations", "converged", "distance"):
            values = [v for solve in found if (v := getattr(solve, name)) is not None]
            if values:
                statistics[f"{prefix}/{name}"] = torch.cat(values).float().mean()
    dampings = [m for m in model.modules() if isinstance(m, AdaptiveDamping)]
    if measured := [(float(d.radius), d.value) for d in dampings if not d.radius.isnan()]:
        # In float32, which every accelerator supports.
        for name, value in zip(("radius", "damping"), max(measured), strict=True):
            statistics[f"gradient/{name}"] = torch.tensor(value, dtype=torch.float32)
    return statistics
