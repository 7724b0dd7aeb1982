"""Throughput: what a training step of the suite's rows costs, on synthetic batches."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from phantomgrad.checks import check_at_least, check_several
from phantomgrad.deq import DEQ
from phantomgrad.gradients import (
    AdjointWarning,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad_suite.jobs.build import synthetic_data
from phantomgrad_suite.studies.base import Findings, Study, Track, silently
from phantomgrad_suite.studies.clock import Clock, frozen_heap, paired_ratio, spread
from phantomgrad_suite.studies.training import PHASES, TrainingStep


@dataclass(frozen=True, kw_only=True)
class Throughput(Study):
    """Seconds of a training step of any rows, with random weights and on synthetic batches.

    Rows take turns, step by step, so that noise of the machine affects all of them alike.

    Numbers: for each of ``rows``, ``batch`` of one process as measured, ``own_batch`` as
    configured, and ``effective_batch``, the latter over all processes; ``seconds`` of each phase
    and of one evaluation ``f``; ``per_second``, in samples; ``in_f``, the phases in evaluations of
    f, and ``counted``, the expected ones; ``faster``, the speed-up of each phase, sample by sample,
    over the row ``baseline``; ``evaluations`` of each kind of solve; ``peak_bytes`` of a step.

    Args:
        rows: experiments.
        batch_size: of one process, replaces the rows' own; ``None`` keeps them.
        batch_sizes: likewise, by row.
        baselines: by row, the row that it is compared with, if that is measured too; or ``None``.
        against: the baseline of the rows that are not in ``baselines``.
        stands_for: by row, the larger row in whose place it is measured, and reported as reduced.
        precision: ``"32-true"``, or ``"bf16-mixed"`` as in Lightning.
        whole_budgets: set all tolerances to zero, so that solves spend their whole budgets.
        warmup: steps of each row before anything is measured.
        repeats: rounds, in each of which every row makes a step.
        compile: how solves are compiled, as in a training run; ``None`` for not at all.
    """

    rows: Sequence[str]
    batch_size: int | None = None
    batch_sizes: Mapping[str, int] = field(default_factory=dict)
    baselines: Mapping[str, str | None] = field(default_factory=dict)
    against: str | None = None
    stands_for: Mapping[str, str] = field(default_factory=dict)
    precision: str = "32-true"
    whole_budgets: bool = False
    warmup: int = 2
    repeats: int = 5
    compile: str | None = None

    def __post_init__(self) -> None:
        check_several("rows", self.rows)
        for name in ("warmup", "repeats"):
            check_at_least(name, getattr(self, name), 1)

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure memory once, then time in turns."""
        torch.manual_seed(seed)
        clock = Clock(device)
        steps = {
            row: TrainingStep(
                *(row, self.batch_sizes.get(row, self.batch_size), seed, clock, self.compile),
                precision=self.precision,
                whole_budgets=self.whole_budgets,
            )
            for row in self.rows
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdjointWarning)  # solves need not converge here
            for step in track(list(steps.values()), "warm-up"):
                step.warm_up(self.warmup)
            with frozen_heap():
                for _ in track(range(self.repeats), "rounds"):
                    for step in steps.values():
                        step.measure()
        rows = [
            {
                **_numbers(step),
                **_speedup(step, steps.get(self._baseline(row))),
                "stands_for": self.stands_for.get(row),
            }
            for row, step in steps.items()
        ]
        return Findings(
            {"clock": clock.name, "rows": rows}, headline="; ".join(map(_headline, rows))
        )

    def _baseline(self, row: str) -> str:
        return self.baselines.get(row, None if row == self.against else self.against) or ""


def _numbers(step: TrainingStep) -> dict[str, Any]:
    own = synthetic_data(step.config.dataset).samples
    devices, nodes = step.config.trainer.get("devices", 1), step.config.trainer.get("num_nodes", 1)
    processes = devices * nodes if isinstance(devices, int) else 1
    seconds = step.seconds
    return {
        "row": step.name,
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
        "counted": counted(step),
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


def _headline(row: Mapping[str, Any]) -> str:
    times = ", ".join(f"{p} {1e3 * row['seconds'][p]['median']:.4g} ms" for p in PHASES[:3])
    faster = f", {row['faster']['step']:.2f} times {row['baseline']}" if row["faster"] else ""
    return f"{row['row']} {row['per_second']:.3g} {row['unit']}/s ({times}{faster})"


def evaluations(layers: Sequence[DEQ]) -> dict[str, dict[str, float]]:
    """Return what the last solves took, until the last sample stopped, and could have taken.

    Both are means over the layers, for the ``forward`` and the ``adjoint`` solves.
    """
    implicit = [(m, m.gradient) for m in layers if isinstance(m.gradient, ImplicitGradient)]
    solves = {
        "forward": [(m.last_solution, m.solver) for m in layers],
        "adjoint": [(m.last_adjoint, gradient.solver) for m, gradient in implicit],
    }
    found = {}
    for name, pairs in solves.items():
        spent = [int(solution.evaluations.max()) for solution, _ in pairs if solution is not None]
        if spent:
            budget = statistics.fmean(solver.max_evaluations for _, solver in pairs)
            found[name] = {"mean": statistics.fmean(spent), "budget": budget}
    return found


def counted(step: TrainingStep) -> dict[str, float] | None:
    """Return the expected cost of the last step in evaluations of f, by phase.

    A product with the transposed Jacobian counts as one, a backward pass to the weights as two.
    ``None`` if steps differ (a Jacobian penalty, jitter of the budget) or the gradient has no
    fixed cost (a damping or fallback that depends on the model, higher order, backpropagation).
    """
    jacobian, jitter = step.task.jacobian, step.config.task.get("budget_jitter")
    if jitter or (jacobian is not None and jacobian.frequency > 0) or not step.layers:
        return None
    gradient = step.layers[0].gradient
    costs = _recorded_and_backward(gradient)
    if costs is None or any(m.gradient != gradient for m in step.layers):
        return None
    spent = {name: solves["mean"] for name, solves in evaluations(step.layers).items()}
    forward, backward = spent["forward"] + costs[0], spent.get("adjoint", 0) + costs[1]
    return {"step": forward + backward, "forward": forward, "backward": backward}


def _recorded_and_backward(gradient: GradientEstimator) -> tuple[float, float] | None:
    """Return the recorded evaluations, and the cost of the backward pass but the adjoint solve."""
    if isinstance(gradient, ImplicitGradient):
        known = gradient.order == 1 and gradient.on_failure != "phantom"
        # At the image there is a second graph, for the adjoint solve alone.
        return (2 if gradient.at == "image" else 1, 2) if known else None
    if gradient.state is not None:  # an adaptive damping measures the map now and then
        return None
    if isinstance(gradient, UnrolledPhantomGradient):
        return gradient.steps, 2 * gradient.steps
    if isinstance(gradient, NeumannPhantomGradient):
        return 1, gradient.steps - 1 + 2
    return None
