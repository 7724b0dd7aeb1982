"""Throughput: what a training step of the suite's rows costs, on synthetic batches."""

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from phantomgrad.checks import check_several
from phantomgrad.deq import DEQ
from phantomgrad.gradients import AdjointWarning, ImplicitGradient
from phantomgrad.solvers import IterativeSolver, LinearSolver, Solution
from phantomgrad_suite.jobs.build import synthetic_data
from phantomgrad_suite.studies.base import Findings, Study, progress
from phantomgrad_suite.studies.meters import Clock, frozen_heap, paired_ratio, spread
from phantomgrad_suite.studies.training import PHASES, TrainingStep


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
    warmup: int = 3  # steps, after which the memory of each language row is full
    repeats: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_several("rows", self.rows)

    def measure(self, seed: int, device: torch.device) -> Findings:
        torch.manual_seed(seed)
        clock, steps = Clock(device), dict[str, TrainingStep]()
        for row in self.rows:
            batch_size = self.batch_sizes.get(row, self.batch_size)
            steps[row] = TrainingStep(row, batch_size, seed, clock, self.whole_budgets)
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
