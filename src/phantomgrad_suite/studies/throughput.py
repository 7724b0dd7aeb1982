"""Throughput: what a training step of the suite's rows costs, on synthetic batches."""

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from phantomgrad.deq import DEQ
from phantomgrad.gradients import AdjointWarning, ImplicitGradient
from phantomgrad.nn import one_pass
from phantomgrad.solvers import GMRES, IterativeSolver, LinearSolver, Solution
from phantomgrad_suite.callbacks.capture import layers_of
from phantomgrad_suite.callbacks.compiled import compile_layer
from phantomgrad_suite.jobs.build import build_task, synthetic_data
from phantomgrad_suite.jobs.compose import compose_row, decisive_settings
from phantomgrad_suite.jobs.environment import set_float32_precision
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.studies.base import Findings, Study, progress
from phantomgrad_suite.studies.meters import Clock, frozen_heap, paired_ratio, peak_bytes, spread

PHASES = ("step", "forward", "backward", "update")


class TrainingStep:
    """The task of an experiment, its optimizer, and one synthetic batch on the device.

    The equilibrium stage is timed, without pretraining; ``update`` includes gradient clipping as
    the trainer does it. The learning rate is zero, so that every step starts from the same weights.
    If the Jacobian is regularised in a share of the steps, one step with and one without are made,
    weighted by that share. ``seconds`` has the measurements by phase, and of one evaluation of f by
    every layer (``f``).
    """

    def __init__(
        self,
        name: str,
        batch_size: int | None,
        seed: int,
        clock: Clock,
        whole_budgets: bool,
        matmul_precision: str | None = None,
        compile: str | None = None,
    ) -> None:
        self.name, self.config, self._clock = name, compose_row(name), clock
        self.config_hash = hash_config(decisive_settings(self.config))
        self.config.matmul_precision = matmul_precision or self.config.matmul_precision
        precision = self.config.trainer.get("precision", "32-true")
        if precision != "32-true":
            raise ValueError(f"rows must be trained in precision 32-true, {name} has {precision!r}")
        if "pretraining_steps" in self.config.task:
            self.config.task.pretraining_steps = 0
        changes = {} if batch_size is None else {"batch_size": batch_size}
        self.data = synthetic_data(self.config.dataset, **changes)
        self.task = build_task(self.config, self.data).to(clock.device).train()
        batch = self.data.draw(torch.Generator().manual_seed(seed))
        self._batch = self.task.transfer_batch_to_device(batch, clock.device, 0)
        found: Any = self.task.configure_optimizers()
        self._optimizer: Optimizer = found if isinstance(found, Optimizer) else found[0][0]
        for group in self._optimizer.param_groups:
            group["lr"] = 0.0
        self.layers = layers_of(self.task)
        for layer in self.layers if whole_budgets else []:
            layer.solver = _whole(layer.solver)
            if isinstance(layer.gradient, ImplicitGradient):
                adjoint = _whole(layer.gradient.solver)
                layer.gradient = replace(layer.gradient, solver=adjoint)
        if compile:
            for layer in self.layers:
                compile_layer(layer, compile)
        self._calls: list[tuple[DEQ, tuple[Any, ...], Any]] = []
        self.seconds: dict[str, list[float]] = {phase: [] for phase in (*PHASES, "f")}
        self.peak_bytes = 0

    def warm_up(self, steps: int) -> None:
        """Make some steps, and measure the memory of one more."""
        for _ in range(steps):
            self.step()
        self.peak_bytes = peak_bytes(self.step, self._clock.device)

    def measure(self) -> None:
        """Time a step, and one evaluation of f on the inputs that the layers had in it."""
        self._clock.settle()
        jacobian = self.task.jacobian
        share = 0.0 if jacobian is None else jacobian.frequency
        always = None if jacobian is None else replace(jacobian, frequency=1.0)
        total = dict.fromkeys(PHASES, 0.0)
        hooks = [m.register_forward_pre_hook(self._note, with_kwargs=True) for m in self.layers]
        for weight, penalty in ((share, always), (1 - share, None)):
            if weight:
                self.task.jacobian = penalty
                self._calls.clear()
                for phase, seconds in self.step().items():
                    total[phase] += weight * seconds
        self.task.jacobian = jacobian
        for hook in hooks:
            hook.remove()
        for phase, seconds in (total | {"f": self._one_f()}).items():
            self.seconds[phase].append(seconds)

    def step(self) -> dict[str, float]:
        """Do what Lightning does between two batches, without logs; return seconds by phase."""
        set_float32_precision(self.config.matmul_precision)
        self._optimizer.zero_grad()
        marks = [self._clock.mark()]
        loss: Tensor = self.task.training_step(self._batch, 0)
        marks.append(self._clock.mark())
        loss.backward()  # type: ignore[no-untyped-call]
        marks.append(self._clock.mark())
        self.task.on_after_backward()
        self.task.on_before_optimizer_step(self._optimizer)
        trainer = self.config.trainer
        limit = trainer.get("gradient_clip_val") or 0.0
        by = GradClipAlgorithmType(trainer.get("gradient_clip_algorithm") or "norm")
        Precision().clip_gradients(self._optimizer, limit, by)
        self.task.optimizer_step(0, 0, self._optimizer, lambda: None)
        marks.append(self._clock.mark())
        spans = [(marks[0], marks[-1]), *pairwise(marks)]
        return {p: self._clock.seconds(*span) for p, span in zip(PHASES, spans, strict=True)}

    def _note(self, layer: DEQ, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        # Detached inside of nested inputs too (the context of a segment): no graph is kept alive.
        inputs, z0 = tree_map_only(Tensor, Tensor.detach, (inputs, options.get("z0")))
        self._calls.append((layer, inputs, z0))

    @torch.no_grad()
    def _one_f(self) -> float:
        total = 0.0
        for layer, inputs, z0 in self._calls:
            f, z = layer.close_over(inputs, torch.zeros_like(inputs[0]) if z0 is None else z0)
            with one_pass(layer.cell):
                total += self._clock.time(partial(f, f(z)))
        return total


def _whole(solver: Any) -> Any:
    """Return a solver that spends its whole budget."""
    return replace(solver, tol=0.0) if isinstance(solver, IterativeSolver | GMRES) else solver


@dataclass(frozen=True, kw_only=True)
class Throughput(Study):
    """Seconds of a training step of any rows, with random weights and on synthetic batches.

    Rows take turns, step by step, so that noise of the machine affects all of them alike.
    """

    rows: Sequence[str]
    batch_size: int | None = None  # of one process, in place of the rows' own
    batch_sizes: Mapping[str, int] = field(default_factory=dict)  # the same by row
    # By row, what it is compared with, or None; other rows with the first one.
    baselines: Mapping[str, str | None] = field(default_factory=dict)
    whole_budgets: bool = False  # set all tolerances to zero
    matmul_precision: str | None = None  # that of the rows unless it is given; high: TF32 on CUDA
    compile: str | None = None  # f in a mode of torch.compile: default, or reduce-overhead on CUDA
    warmup: int = 3  # steps, after which the memory of each language row is full
    repeats: int = 5

    def measure(self, seed: int, device: torch.device) -> Findings:
        torch.manual_seed(seed)
        clock, steps = Clock(device), dict[str, TrainingStep]()
        for row in self.rows:
            batch_size = self.batch_sizes.get(row, self.batch_size)
            steps[row] = TrainingStep(
                *(row, batch_size, seed, clock, self.whole_budgets),
                *(self.matmul_precision, self.compile),
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdjointWarning)  # solves need not converge here
            for step in steps.values():
                step.warm_up(self.warmup)
            with frozen_heap():
                for _ in progress(range(self.repeats)):
                    for step in steps.values():
                        step.measure()
        rows = []
        for row, step in steps.items():
            baseline = self.baselines.get(row, self.rows[0])
            compared = _speedup(step, steps.get(baseline or "") if baseline != row else None)
            rows.append({**_numbers(step), **compared})
        return Findings({"clock": clock.name, "rows": rows})


def _numbers(step: TrainingStep) -> dict[str, Any]:
    own = synthetic_data(step.config.dataset).samples
    devices, nodes = step.config.trainer.get("devices", 1), step.config.trainer.get("num_nodes", 1)
    processes = devices * nodes if isinstance(devices, int) else 1
    seconds = step.seconds
    return {
        "row": step.name,
        "config_hash": step.config_hash,
        "label": {key: step.config.label[key] for key in ("dataset", "method", "model")},
        "parameters": sum(p.numel() for p in step.task.model.parameters()),
        "batch": step.data.samples,
        "own_batch": own,
        "effective_batch": own * processes,
        "unit": step.data.unit,
        "seconds": {phase: spread(samples) for phase, samples in seconds.items()},
        "per_second": step.data.samples / statistics.median(seconds["step"]),
        "in_f": {phase: paired_ratio(seconds[phase], seconds["f"]) for phase in PHASES},
        "evaluations": evaluations(step.layers),
        "peak_bytes": step.peak_bytes,
    }


def _speedup(step: TrainingStep, baseline: TrainingStep | None) -> dict[str, Any]:
    if baseline is None:
        return {"baseline": None, "faster": {}}
    share = step.data.samples / baseline.data.samples
    faster = {
        phase: share * paired_ratio(baseline.seconds[phase], step.seconds[phase])
        for phase in PHASES[:3]
    }
    return {"baseline": baseline.name, "faster": faster}


def evaluations(layers: Sequence[DEQ]) -> dict[str, dict[str, float]]:
    """Return the evaluations of the last solves, until the last sample stopped: layer means."""
    implicit = [(m, m.gradient) for m in layers if isinstance(m.gradient, ImplicitGradient)]
    solves: dict[str, list[tuple[Solution | None, LinearSolver]]] = {
        "forward": [(m.last_solution, m.solver) for m in layers],
        "adjoint": [(m.last_adjoint, gradient.solver) for m, gradient in implicit],
    }
    found = {}
    for name, pairs in solves.items():
        spent = [int(solution.evaluations.max()) for solution, _ in pairs if solution is not None]
        if spent:
            budgets = [s.max_evaluations for _, s in pairs if isinstance(s, IterativeSolver)]
            budget = statistics.fmean(budgets or spent)
            found[name] = {"mean": statistics.fmean(spent), "budget": budget}
    return found
