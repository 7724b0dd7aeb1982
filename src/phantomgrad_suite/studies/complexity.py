"""Table 2: what each gradient costs, in time and memory, against k and the solver's budget K."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.polynomial import polynomial
from torch import Tensor

from phantomgrad.gradients import (
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.solvers import Broyden, FixedPoint, IterativeSolver
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study
from phantomgrad_suite.studies.meters import Clock, peak_bytes
from phantomgrad_suite.studies.synthetic import SyntheticCell

QUANTITIES = ("seconds", "graph_bytes", "peak_bytes")
_GROWS, _FLAT = 0.5, 0.25  # by which share of its right end the fitted line rises


@dataclass(frozen=True, kw_only=True)
class Complexity(Study):
    """Time and memory of the gradient alone (Geng et al., 2021, Table 2).

    Each estimator is attached to an equilibrium of the synthetic layer, and a cotangent is pulled
    back to its weight and input: the median time of both, the bytes that the graph holds between
    them, and the peak memory, by the steps k or the ``budgets`` K of the adjoint solve.
    """

    size: int = 128
    rows: int = 32
    batch: int = 64
    steps: Sequence[int] = (1, 2, 5, 10, 15, 20)
    budgets: Sequence[int] = (5, 10, 20, 30, 40)
    damping: float = 0.5
    repeats: int = 9

    def measure(self, seed: int, device: torch.device) -> Findings:
        problem, methods = _Problem(self, seed, device), self._methods()
        estimators = [make(size) for _, _, sizes, make in methods for size in sizes]
        graphs = [problem.graph_bytes(estimator) for estimator in estimators]
        calls = [partial(problem.gradient, estimator) for estimator in estimators]
        peaks = [peak_bytes(call, device) for call in calls]
        medians = map(statistics.median, problem.clock.take_turns(calls, self.repeats))
        costs = zip(medians, graphs, peaks, strict=True)
        found: list[dict[str, Any]] = []
        for name, variable, sizes, _ in methods:
            columns = map(list, zip(*islice(costs, len(sizes)), strict=True))
            values = dict(zip(QUANTITIES, columns, strict=True))
            fits = {q: fit(sizes, column, variable) for q, column in values.items()}
            found.append(
                {"name": name, "variable": variable, "sizes": list(sizes), **values, "fits": fits}
            )
        numbers = {
            "methods": found,
            "state_bytes": self.batch * self.rows * self.size * 4,
            "clock": problem.clock.name,
        }
        return Findings(numbers, _checks(found))

    def _methods(self) -> list[tuple[str, str, Sequence[int], Callable[[int], GradientEstimator]]]:
        def implicit(kind: type[IterativeSolver], budget: int) -> GradientEstimator:
            solver = kind(max_evaluations=budget, tol=0)
            return ImplicitGradient(solver=solver, on_failure="ignore")

        return [
            ("Implicit, fixed point", "K", self.budgets, partial(implicit, FixedPoint)),
            ("Implicit, Broyden", "K", self.budgets, partial(implicit, Broyden)),
            ("UPG", "k", self.steps, lambda k: UnrolledPhantomGradient(k, self.damping)),
            ("NPG", "k", self.steps, lambda k: NeumannPhantomGradient(k, self.damping)),
        ]


class _Problem:
    def __init__(self, study: Complexity, seed: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.clock = Clock(device)
        self.cell = SyntheticCell(study.size, generator=generator).to(device)
        shape = (study.batch, study.rows, study.size)
        self.u, self.v = torch.randn(2, *shape, generator=generator).to(device)
        solver = FixedPoint(max_evaluations=100, tol=1e-5)
        self.z = solver.solve(lambda h: self.cell(h, self.u), self.u * 0).z
        self.cell.weight.requires_grad_()
        self.u.requires_grad_()

    def attach(self, estimator: GradientEstimator) -> Tensor:
        return estimator.attach(lambda h: self.cell(h, self.u), self.z)

    def gradient(self, estimator: GradientEstimator) -> None:
        torch.autograd.grad(self.attach(estimator), (self.cell.weight, self.u), self.v)

    def graph_bytes(self, estimator: GradientEstimator) -> int:
        """Return the bytes that only the graph keeps alive, counting each storage once."""
        held = {t.untyped_storage().data_ptr() for t in (self.cell.weight, self.u, self.z)}
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in held:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            attached = self.attach(estimator)
        del attached
        return sum(saved.values())


def fit(sizes: Sequence[int], values: Sequence[float], variable: str) -> dict[str, Any]:
    """Return the least-squares line, and the order that it suggests: O(1), O(k), O(k²) or unclear.

    ``climbs`` is the rise of the line as a share of its right end; ``curve`` has its coefficients,
    or those of a parabola that opens upwards where that explains far more of the variance.
    """
    slope, intercept = statistics.linear_regression(sizes, values)
    right = intercept + slope * max(sizes)
    climbs = slope * (max(sizes) - min(sizes)) / right if right else 0.0
    line = [intercept, slope]
    parabola = [float(x) for x in polynomial.polyfit(sizes, values, 2)]
    by_line, by_parabola = (_unexplained(c, sizes, values) for c in (line, parabola))
    bends = parabola[2] > 0 and by_line > 0.01 and by_parabola < by_line / 4
    order = "unclear"
    if abs(climbs) < _FLAT:
        order = "O(1)"
    elif climbs > _GROWS and bends:
        order = f"O({variable}²)"
    elif climbs > _GROWS and by_line < 0.1:
        order = f"O({variable})"
    return {
        "slope": slope,
        "intercept": intercept,
        "curve": parabola if order.endswith("²)") else line,
        "r2": 1 - by_line,
        "climbs": climbs,
        "order": order,
    }


def _unexplained(curve: Sequence[float], sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the share of the variance of ``values`` that a fitted polynomial leaves."""
    variance = np.var(values)
    errors = values - polynomial.polyval(np.asarray(sizes, dtype=float), curve)
    return float(np.mean(errors**2) / variance) if variance else 0.0


def _checks(methods: Sequence[dict[str, Any]]) -> list[Check]:
    # Of the peaks NPG's alone, as solvers need memory.
    climbs = {m["name"]: {q: m["fits"][q]["climbs"] for q in QUANTITIES} for m in methods}
    grows = [(name, "seconds") for name in climbs] + [("UPG", "graph_bytes")]
    flat = [(name, "graph_bytes") for name in climbs if name != "UPG"] + [("NPG", "peak_bytes")]
    return [
        *(Check.above(f"{name}: {q} grow", climbs[name][q], _GROWS) for name, q in grows),
        *(Check.below(f"{name}: {q} do not grow", climbs[name][q], _FLAT) for name, q in flat),
    ]
