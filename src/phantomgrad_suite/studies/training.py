"""One row's training step, made by hand so that its phases can be timed."""

from __future__ import annotations

import gc
import itertools
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from omegaconf import DictConfig
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from phantomgrad.deq import DEQ
from phantomgrad.gradients import ImplicitGradient
from phantomgrad.nn import shared_parametrizations
from phantomgrad_suite.jobs.build import build_task, synthetic_data
from phantomgrad_suite.jobs.compose import compose_row
from phantomgrad_suite.jobs.numerics import compile_solves, set_float32_precision
from phantomgrad_suite.studies.clock import Clock, Mark
from phantomgrad_suite.studies.memory import peak_bytes
from phantomgrad_suite.tasks import JacobianRegularisation

PHASES = ("step", "forward", "backward", "update")
_PRECISIONS = ("32-true", "bf16-mixed")


class Marks(NamedTuple):
    """The moments between the phases of a step."""

    start: Mark
    forward: Mark
    backward: Mark
    end: Mark


class TrainingStep:
    """The task of an experiment, its optimizer, and one synthetic batch on the device.

    It is the equilibrium stage that is measured, whatever pretraining the row has. Gradients are
    clipped as its trainer does, which is part of ``update``. The learning rate is zero: every step
    finds the same weights, at the price of any other step. Of a row that regularises the Jacobian
    in a share of its steps, one with and one without are made each time, and their mean by that
    share is what is kept.

    Attributes:
        name: the experiment.
        config: its configuration.
        data: what its batch was drawn from.
        layers: the equilibrium layers of its model.
        seconds: of each phase, and of one evaluation of f (by every layer), by measured step.
        peak_bytes: by how much a step raises the memory in use.

    Args:
        name: the experiment.
        batch_size: in the place of its own.
        seed: of the batch.
        clock: of the device.
        compiled: how solves are compiled, as ``compile`` of a training run.
        precision: ``"32-true"``, or ``"bf16-mixed"`` as Lightning has it.
        whole_budgets: whether solves spend their budgets whatever they find; else random weights
            end them where they converge.

    Raises:
        UserError: there is no such experiment, no noise in the shapes of its data, or no such
            compiler.
        ValueError: it is trained in a precision other than float32, or ``precision`` is another.
    """

    def __init__(
        self,
        name: str,
        batch_size: int | None,
        seed: int,
        clock: Clock,
        compiled: str | None = None,
        *,
        precision: str = "32-true",
        whole_budgets: bool = False,
    ) -> None:
        self.name, self.config, self._clock = name, compose_row(name), clock
        _check_precision(name, self.config)
        if precision not in _PRECISIONS:
            raise ValueError(f"precision must be {' or '.join(_PRECISIONS)}, got {precision!r}")
        mixed = precision == "bf16-mixed"
        self._autocast = partial(torch.autocast, clock.device.type, torch.bfloat16, enabled=mixed)
        if "pretraining_steps" in self.config.task:
            self.config.task.pretraining_steps = 0
        changes = {} if batch_size is None else {"batch_size": batch_size}
        self.data = synthetic_data(self.config.dataset, **changes)
        self.task = build_task(self.config, self.data).to(clock.device).train()
        compile_solves(self.task.model, compiled, clock.device)
        batch = self.data.draw(torch.Generator().manual_seed(seed))
        self._batch = self.task.transfer_batch_to_device(batch, clock.device, 0)
        self._optimizer = _frozen(self.task.configure_optimizers())
        self.layers = [m for m in self.task.modules() if isinstance(m, DEQ)]
        if whole_budgets:
            for layer in self.layers:
                _spend_all(layer)
        self._calls: list[tuple[DEQ, tuple[Any, ...], Any]] = []
        self.seconds: dict[str, list[float]] = {phase: [] for phase in (*PHASES, "f")}
        self.peak_bytes = 0

    def warm_up(self, steps: int) -> None:
        """Make some steps, see what the layers are called with, and take the memory."""
        for _ in range(steps - 1):
            self._step()
        hooks = [m.register_forward_pre_hook(self._note, with_kwargs=True) for m in self.layers]
        self._step()
        for hook in hooks:
            hook.remove()
        self.peak_bytes = peak_bytes(self._step, self._clock.device)

    def measure(self) -> None:
        """Make a step and one evaluation of f, and keep their seconds."""
        gc.collect()
        self._clock.settle()
        shares = _shares(self.task.jacobian)
        found = [self._phases(jacobian) for _, jacobian in shares]
        for phase in PHASES:
            mean = sum(share * x[phase] for (share, _), x in zip(shares, found, strict=True))
            self.seconds[phase].append(mean)
        self.seconds["f"].append(self._one_f())

    def _phases(self, jacobian: JacobianRegularisation | None) -> dict[str, float]:
        """Make a step with this penalty, and return the seconds of its phases."""
        kept, self.task.jacobian = self.task.jacobian, jacobian
        try:
            marks = self._step()
        finally:
            self.task.jacobian = kept
        ends = [(marks.start, marks.end), *itertools.pairwise(marks)]
        return {phase: self._clock.seconds(*pair) for phase, pair in zip(PHASES, ends, strict=True)}

    def _step(self) -> Marks:
        """Do what Lightning does between two batches, but log."""
        set_float32_precision(self.config.matmul_precision)
        self._optimizer.zero_grad()
        start = self._clock.mark()
        with self._autocast():
            loss: Tensor = self.task.training_step(self._batch, 0)
        forward = self._clock.mark()
        loss.backward()  # type: ignore[no-untyped-call]
        backward = self._clock.mark()
        self.task.on_after_backward()
        self.task.on_before_optimizer_step(self._optimizer)
        Precision().clip_gradients(self._optimizer, *_clipping(self.config.trainer))
        self.task.optimizer_step(0, 0, self._optimizer, lambda: None)
        return Marks(start, forward, backward, self._clock.mark())

    def _note(self, layer: DEQ, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        # Tensors inside of tuples too, as the constants of a segment: no graph is to be kept alive.
        inputs, z0 = tree_map_only(Tensor, Tensor.detach, (inputs, options.get("z0")))
        self._calls.append((layer, inputs, torch.zeros_like(inputs[0]) if z0 is None else z0))

    @torch.no_grad()
    def _one_f(self) -> float:
        total = 0.0
        for layer, inputs, z0 in self._calls:
            f, z, _ = layer.close_over(inputs, z0)
            with shared_parametrizations(layer.cell), self._autocast():
                z = f(z)
                start = self._clock.mark()
                f(z)
                total += self._clock.seconds(start, self._clock.mark())
        return total


def _spend_all(layer: DEQ) -> None:
    """Have every solve of a layer go on to the end of its budget."""
    layer.solver = replace(layer.solver, tol=0.0)
    if isinstance(layer.gradient, ImplicitGradient):
        endless = replace(layer.gradient.solver, tol=0.0)
        layer.gradient = replace(layer.gradient, solver=endless)


def _frozen(configured: Any) -> Optimizer:
    """Return the optimizer that a task has configured, with a learning rate of zero."""
    optimizer: Optimizer = configured if isinstance(configured, Optimizer) else configured[0][0]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    return optimizer


def _clipping(trainer: DictConfig) -> tuple[float, GradClipAlgorithmType]:
    """Return the value, 0 for none, and the way in which the trainer clips gradients."""
    algorithm = trainer.get("gradient_clip_algorithm") or GradClipAlgorithmType.NORM
    return trainer.get("gradient_clip_val") or 0.0, GradClipAlgorithmType(algorithm)


def _shares(
    jacobian: JacobianRegularisation | None,
) -> list[tuple[float, JacobianRegularisation | None]]:
    """Return which penalties steps have, and which share of the steps has each."""
    if jacobian is None or jacobian.frequency == 0:
        return [(1.0, None)]
    always, share = replace(jacobian, frequency=1.0), jacobian.frequency
    return [(share, always)] if share == 1 else [(share, always), (1 - share, None)]


def _check_precision(name: str, config: DictConfig) -> None:
    precision = config.trainer.get("precision", "32-true")
    if precision != "32-true":
        raise ValueError(f"rows must be trained in precision 32-true, {name} has {precision!r}")
