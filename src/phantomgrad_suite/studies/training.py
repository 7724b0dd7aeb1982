"""The training step of an experiment, made by hand so that its phases can be timed."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from phantomgrad.checks import check_choice
from phantomgrad.deq import DEQ
from phantomgrad.gradients import ImplicitGradient
from phantomgrad.nn import shared_parametrizations
from phantomgrad_suite.jobs.build import build_task, synthetic_data
from phantomgrad_suite.jobs.compose import compose_row
from phantomgrad_suite.jobs.numerics import compile_solves, set_float32_precision
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.memory import peak_bytes
from phantomgrad_suite.tasks import JacobianRegularisation

PHASES = ("step", "forward", "backward", "update")


class TrainingStep:
    """The task of an experiment, its optimizer, and one synthetic batch on the device.

    What is timed is the equilibrium stage, without pretraining. ``update`` includes gradient
    clipping as the trainer of the experiment does it. The learning rate is zero, so that every
    step starts from the same weights at the usual cost. If the Jacobian is regularised in a share
    of the steps, one step with and one without are made, and their mean is weighted by that share.

    ``seconds`` has a list of measurements for each phase, and for one evaluation of f by every
    layer (``f``); ``peak_bytes`` is the peak memory of a step. The options are those of
    :class:`Throughput`; the experiment must be trained in float32.
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
        trained_in = self.config.trainer.get("precision", "32-true")
        if trained_in != "32-true":
            raise ValueError(
                f"rows must be trained in precision 32-true, {name} has {trained_in!r}"
            )
        check_choice("precision", precision, ("32-true", "bf16-mixed"))
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
        found: Any = self.task.configure_optimizers()
        self._optimizer: Optimizer = found if isinstance(found, Optimizer) else found[0][0]
        for group in self._optimizer.param_groups:
            group["lr"] = 0.0
        self.layers = [m for m in self.task.modules() if isinstance(m, DEQ)]
        for layer in self.layers if whole_budgets else []:
            layer.solver = replace(layer.solver, tol=0.0)
            if isinstance(layer.gradient, ImplicitGradient):
                adjoint = replace(layer.gradient.solver, tol=0.0)
                layer.gradient = replace(layer.gradient, solver=adjoint)
        self._calls: list[tuple[DEQ, tuple[Any, ...], Any]] = []
        self.seconds: dict[str, list[float]] = {phase: [] for phase in (*PHASES, "f")}
        self.peak_bytes = 0

    def warm_up(self, steps: int) -> None:
        """Make some steps, note the inputs of the layers in the last, and measure memory."""
        for _ in range(steps - 1):
            self._step()
        hooks = [m.register_forward_pre_hook(self._note, with_kwargs=True) for m in self.layers]
        self._step()
        for hook in hooks:
            hook.remove()
        self.peak_bytes = peak_bytes(self._step, self._clock.device)

    def measure(self) -> None:
        """Time a step and one evaluation of f."""
        gc.collect()
        self._clock.settle()
        own, steps = self.task.jacobian, []
        try:
            for share, self.task.jacobian in _shares(own):
                steps.append((share, self._step()))
        finally:
            self.task.jacobian = own
        for phase in PHASES:
            self.seconds[phase].append(sum(share * seconds[phase] for share, seconds in steps))
        self.seconds["f"].append(self._one_f())

    def _step(self) -> dict[str, float]:
        """Do what Lightning does between two batches, without logs; return seconds by phase."""
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
        trainer = self.config.trainer
        limit = trainer.get("gradient_clip_val") or 0.0
        by = GradClipAlgorithmType(trainer.get("gradient_clip_algorithm") or "norm")
        Precision().clip_gradients(self._optimizer, limit, by)
        self.task.optimizer_step(0, 0, self._optimizer, lambda: None)
        end = self._clock.mark()
        spans = ((start, end), (start, forward), (forward, backward), (backward, end))
        return {p: self._clock.seconds(*span) for p, span in zip(PHASES, spans, strict=True)}

    def _note(self, layer: DEQ, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        # Detached inside of nested inputs too (the context of a segment): no graph is kept alive.
        inputs, z0 = tree_map_only(Tensor, Tensor.detach, (inputs, options.get("z0")))
        self._calls.append((layer, inputs, torch.zeros_like(inputs[0]) if z0 is None else z0))

    @torch.no_grad()
    def _one_f(self) -> float:
        total = 0.0
        for layer, inputs, z0 in self._calls:
            f, z, _ = layer.close_over(inputs, z0)
            with shared_parametrizations(layer.cell), self._autocast():
                total += self._clock.time(partial(f, f(z)))
        return total


def _shares(
    jacobian: JacobianRegularisation | None,
) -> list[tuple[float, JacobianRegularisation | None]]:
    """Return the penalties that occur in training, each with its share of the steps."""
    if jacobian is None or jacobian.frequency == 0:
        return [(1.0, None)]
    always, share = replace(jacobian, frequency=1.0), jacobian.frequency
    return [(share, always)] if share == 1 else [(share, always), (1 - share, None)]
