"""Throughput: what a training step of the suite's rows costs, on synthetic batches."""

from __future__ import annotations

import gc
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import OmegaConf

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
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.training import PHASES, TrainingStep


@dataclass(frozen=True, kw_only=True)
class Throughput(Study):
    """Seconds of a training step of any rows, with random weights and on synthetic batches.

    Rows take turns, step by step, so that a noisy machine hurts all of them alike.

    Numbers: ``clock``, and ``rows``, a list of ``row``, ``stands_for``, ``label``, ``parameters``;
    ``batch``, that of one process as measured, ``own_batch``, as the row has it, and
    ``effective_batch``, the latter over all processes of the row; ``evaluations`` of f and of the
    adjoint map in a solve, each beside its ``budget``; ``seconds`` of each phase and of one ``f``
    alone, each with ``median``, ``quartiles`` and ``samples``; ``per_second``, samples in it, and
    their ``unit``; ``in_f``, the phases in evaluations of f as measured, and ``counted``, as they
    are expected (a product with the transposed Jacobian as one, a backward pass to the weights as
    two), ``None`` where no such number holds (see :func:`counted`); ``faster``, how many times less
    time each phase takes for a sample than in the row ``baseline``; ``peak_bytes``, by which a step
    raises the memory in use.

    Args:
        rows: experiments.
        batch_size: of one process, in the place of the rows' own; ``None`` keeps them.
        batch_sizes: likewise, by row.
        baselines: the row that each is compared with, where that is measured too; ``None`` for
            none.
        against: the row that those which are not named there are compared with.
        stands_for: the row, by row, in the place of which a smaller one is measured: it is that
            one whose speed a table then shows, as reduced.
        precision: ``"32-true"``, or ``"bf16-mixed"`` as Lightning has it.
        whole_budgets: whether solves spend their budgets whatever they find; else random weights
            end them where they converge.
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
        """Measure memory once, and time in turns."""
        torch.manual_seed(seed)
        clock = Clock(device)
        rows = {
            row: TrainingStep(
                *(row, self.batch_sizes.get(row, self.batch_size), seed, clock, self.compile),
                precision=self.precision,
                whole_budgets=self.whole_budgets,
            )
            for row in self.rows
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdjointWarning)  # random weights promise no solution
            for row in track(list(rows.values()), "warm-up"):
                row.warm_up(self.warmup)
            self._take_turns(list(rows.values()), track)
        baselines = {name: rows.get(self._baseline(name)) for name in rows}
        found = [
            {
                **_setting(row),
                **_cost(row),
                **_compared(row, baselines[name]),
                "stands_for": self.stands_for.get(name),
            }
            for name, row in rows.items()
        ]
        return Findings({"clock": clock.name, "rows": found}, headline=_headline(found))

    def _baseline(self, row: str) -> str:
        return self.baselines.get(row, None if row == self.against else self.against) or ""

    def _take_turns(self, rows: Sequence[TrainingStep], track: Track) -> None:
        gc.collect()
        gc.freeze()  # what is there by now need not be searched for garbage before every run
        try:
            for _ in track(range(self.repeats), "rounds"):
                for row in rows:
                    row.measure()
        finally:
            gc.unfreeze()


def _setting(row: TrainingStep) -> dict[str, Any]:
    own = synthetic_data(row.config.dataset).samples
    devices, nodes = row.config.trainer.get("devices", 1), row.config.trainer.get("num_nodes", 1)
    processes = devices * nodes if isinstance(devices, int) else 1
    return {
        "row": row.name,
        "label": OmegaConf.to_container(row.config.label, resolve=True),
        "parameters": sum(p.numel() for p in row.task.model.parameters()),
        "batch": row.data.samples,
        "own_batch": own,
        "effective_batch": own * processes,
        "unit": row.data.unit,
    }


def _cost(row: TrainingStep) -> dict[str, Any]:
    seconds = row.seconds
    return {
        "seconds": {phase: _spread(samples) for phase, samples in seconds.items()},
        "per_second": row.data.samples / statistics.median(seconds["step"]),
        "in_f": {phase: _paired(seconds[phase], seconds["f"]) for phase in PHASES},
        "evaluations": _evaluations(row.layers),
        "counted": counted(row),
        "peak_bytes": row.peak_bytes,
    }


def _compared(row: TrainingStep, baseline: TrainingStep | None) -> dict[str, Any]:
    if baseline is None:
        return {"baseline": None, "faster": {}}
    share = row.data.samples / baseline.data.samples
    faster = {
        phase: share * _paired(baseline.seconds[phase], row.seconds[phase]) for phase in PHASES[:3]
    }
    return {"baseline": baseline.name, "faster": faster}


def _evaluations(layers: Sequence[DEQ]) -> dict[str, dict[str, float]]:
    """Return what a solve takes, until its last sample stops, and may take; means over layers."""
    found = {}
    implicit = [m for m in layers if isinstance(m.gradient, ImplicitGradient)]
    for name, which, solutions in (
        ("forward", layers, [m.last_solution for m in layers]),
        ("adjoint", implicit, [m.last_adjoint for m in implicit]),
    ):
        spent = [int(s.evaluations.max()) for s in solutions if s is not None]
        solvers = [m.solver if name == "forward" else m.gradient.solver for m in which]  # type: ignore[attr-defined]
        if spent:
            budget = statistics.fmean(s.max_evaluations for s in solvers)
            found[name] = {"mean": statistics.fmean(spent), "budget": budget}
    return found


def counted(row: TrainingStep) -> dict[str, float] | None:
    """Return what a step should cost in evaluations of f, after the last one.

    ``None`` where its steps differ, by a penalty on the Jacobian or a jitter of the budget; and for
    gradients that have no such number: with a damping or a fallback that depends on the model, of
    higher order, or through the solver.
    """
    jacobian, jitter = row.task.jacobian, row.config.task.get("budget_jitter")
    if jitter or (jacobian is not None and jacobian.frequency > 0) or not row.layers:
        return None
    of_gradient = _of_gradient(row.layers[0].gradient)
    if of_gradient is None or any(m.gradient != row.layers[0].gradient for m in row.layers):
        return None
    spent = {name: solves["mean"] for name, solves in _evaluations(row.layers).items()}
    recorded, behind = of_gradient
    forward, backward = spent["forward"] + recorded, spent.get("adjoint", 0) + behind
    return {"step": forward + backward, "forward": forward, "backward": backward}


def _of_gradient(gradient: GradientEstimator) -> tuple[float, float] | None:
    """Return what is recorded, and what the backward pass costs but for an adjoint solve."""
    if isinstance(gradient, ImplicitGradient):
        known = gradient.order == 1 and gradient.on_failure != "phantom"
        # At the image there is a second graph, which serves the adjoint solve alone.
        return (2 if gradient.at == "image" else 1, 2) if known else None
    if gradient.state is not None:  # an adaptive damping measures the map now and then
        return None
    if isinstance(gradient, UnrolledPhantomGradient):
        return gradient.steps, 2 * gradient.steps
    if isinstance(gradient, NeumannPhantomGradient):
        return 1, gradient.steps - 1 + 2
    return None


def _spread(samples: Sequence[float]) -> dict[str, Any]:
    middle = statistics.median(samples)
    several = len(samples) > 1
    quartiles = statistics.quantiles(samples, n=4, method="inclusive") if several else [middle] * 3
    return {"median": middle, "quartiles": quartiles, "samples": list(samples)}


def _paired(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the median over the rounds of the ratio within a round."""
    return statistics.median(x / y if y else float("inf") for x, y in zip(a, b, strict=True))


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    def said(row: Mapping[str, Any]) -> str:
        seconds = {phase: row["seconds"][phase]["median"] for phase in PHASES[:3]}
        times = ", ".join(f"{phase} {1e3 * seconds[phase]:.4g} ms" for phase in PHASES[:3])
        faster = f", {row['faster']['step']:.2f} times {row['baseline']}" if row["faster"] else ""
        return f"{row['row']} {row['per_second']:.3g} {row['unit']}/s ({times}{faster})"

    return "; ".join(said(row) for row in rows)
