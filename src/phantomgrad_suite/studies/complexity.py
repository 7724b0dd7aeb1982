"""Table 2: what each gradient costs, in time and memory, against k and the solver's budget K."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_several
from phantomgrad.gradients import (
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import SyntheticCell
from phantomgrad.solvers import Broyden, FixedPoint
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, Track, silently
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.memory import peak_bytes

QUANTITIES = ("seconds", "graph_bytes", "peak_bytes")
_GROWS, _FLAT = 0.5, 0.25  # share of the value at the right end that the fitted line climbs


@dataclass(frozen=True, kw_only=True)
class Complexity(Study):
    r"""Time and memory of the gradient alone (Geng et al., 2021, Table 2).

    At an equilibrium of the synthetic layer, with a weight that is differentiated, each estimator
    attaches it and pulls a cotangent back to weight and input. Measured are the time of both, the
    bytes that the graph holds between them (every tensor it saves, once), and by how much memory
    in use rises at its highest point. Implicit differentiation solves with K evaluations, by
    fixed-point iteration and by Broyden's method; the phantom gradients take k steps.

    Numbers: ``methods`` is a list of ``name``, ``variable`` (``k`` or ``K``), ``sizes``, the three
    quantities by size (``seconds`` is the median over the rounds), and ``fits``: for each quantity
    the least-squares line, ``slope``, ``intercept``, ``r2``, the share of its right end that it
    ``climbs``, the ``curve`` that is drawn, and the ``order`` this amounts to: ``O(1)``, ``O(k)``,
    ``O(k²)`` or ``unclear``. ``state_bytes`` is the size of one state, ``clock`` what the seconds
    are.

    Args:
        size: D.
        rows: N.
        batch: number of states.
        steps: the values of k.
        budgets: the values of K, evaluations of the adjoint map.
        damping: :math:`\lambda`.
        repeats: rounds, in each of which every case runs once.
    """

    size: int = 128
    rows: int = 32
    batch: int = 64
    steps: Sequence[int] = (1, 2, 5, 10, 15, 20)
    budgets: Sequence[int] = (5, 10, 20, 30, 40)
    damping: float = 0.5
    repeats: int = 9

    def __post_init__(self) -> None:
        for name in ("size", "rows", "batch", "repeats"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("steps", "budgets"):
            check_several(name, getattr(self, name), 3)

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure memory once, and time in turns."""
        problem = _Problem.of(self, seed, device)
        cases = [
            _Case(name, variable, size, estimator)
            for name, variable, sizes, make in self._methods()
            for size in sizes
            for estimator in (make(size),)
        ]
        for case in cases:
            case.graph_bytes = problem.graph_bytes(case.estimator)
            case.peak_bytes = peak_bytes(partial(problem.gradient, case.estimator), device)
        gc.collect()
        gc.freeze()  # what is there by now need not be searched for garbage before every run
        try:
            for _ in track(range(self.repeats), "rounds"):
                for case in cases:
                    case.samples.append(problem.seconds(case.estimator))
        finally:
            gc.unfreeze()
        methods = [
            _summary(name, variable, [case for case in cases if case.name == name])
            for name, variable, _, _ in self._methods()
        ]
        state = self.batch * self.rows * self.size * 4
        numbers = {"methods": methods, "state_bytes": state, "clock": problem.clock.name}
        slopes = ", ".join(
            f"{m['name']} {m['fits']['seconds']['slope'] * 1e3:.2g} ms per {m['variable']}"
            for m in methods
        )
        return Findings(numbers, _checks(methods), slopes)

    def _methods(self) -> list[tuple[str, str, Sequence[int], Any]]:
        return [
            ("Implicit, fixed point", "K", self.budgets, _implicit_by_fixed_point),
            ("Implicit, Broyden", "K", self.budgets, _implicit_by_broyden),
            ("UPG", "k", self.steps, lambda k: UnrolledPhantomGradient(k, self.damping)),
            ("NPG", "k", self.steps, lambda k: NeumannPhantomGradient(k, self.damping)),
        ]


def _implicit_by_fixed_point(budget: int) -> ImplicitGradient:
    return ImplicitGradient(solver=FixedPoint(max_evaluations=budget, tol=0), on_failure="ignore")


def _implicit_by_broyden(budget: int) -> ImplicitGradient:
    return ImplicitGradient(solver=Broyden(max_evaluations=budget, tol=0), on_failure="ignore")


class _Case:
    """One method at one size, and what was measured of it."""

    def __init__(self, name: str, variable: str, size: int, estimator: GradientEstimator) -> None:
        self.name, self.variable, self.size, self.estimator = name, variable, size, estimator
        self.graph_bytes = self.peak_bytes = 0
        self.samples: list[float] = []


@dataclass(frozen=True)
class _Problem:
    """An equilibrium and a cotangent, ready to be differentiated."""

    cell: SyntheticCell
    u: Tensor
    z: Tensor
    v: Tensor
    clock: Clock

    @classmethod
    def of(cls, study: Complexity, seed: int, device: torch.device) -> _Problem:
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(study.size, generator=generator).to(device)
        shape = (study.batch, study.rows, study.size)
        u, v = torch.randn(2, *shape, generator=generator).to(device)
        z = FixedPoint(max_evaluations=100, tol=1e-5).solve(lambda h: cell(h, u), u * 0).z
        cell.weight.requires_grad_()
        return cls(cell, u.requires_grad_(), z, v, Clock(device))

    def attach(self, estimator: GradientEstimator) -> Tensor:
        return estimator.attach(lambda h: self.cell(h, self.u), self.z)

    def gradient(self, estimator: GradientEstimator) -> None:
        torch.autograd.grad(self.attach(estimator), (self.cell.weight, self.u), self.v)

    def seconds(self, estimator: GradientEstimator) -> float:
        gc.collect()
        self.clock.settle()
        start = self.clock.mark()
        self.gradient(estimator)
        return self.clock.seconds(start, self.clock.mark())

    def graph_bytes(self, estimator: GradientEstimator) -> int:
        """Return the bytes of what the graph saves and nothing else holds, each storage once."""
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


def _summary(name: str, variable: str, cases: Sequence[_Case]) -> dict[str, Any]:
    sizes = [case.size for case in cases]
    values: dict[str, list[float]] = {
        "seconds": [statistics.median(case.samples) for case in cases],
        "graph_bytes": [case.graph_bytes for case in cases],
        "peak_bytes": [case.peak_bytes for case in cases],
    }
    fits = {quantity: fit(sizes, values[quantity], variable) for quantity in QUANTITIES}
    return {"name": name, "variable": variable, "sizes": sizes, **values, "fits": fits}


def fit(sizes: Sequence[int], values: Sequence[float], variable: str) -> dict[str, Any]:
    """Return the least-squares line of ``values`` by ``sizes``, and the order it amounts to.

    ``curve`` holds the coefficients, constant first, of what is taken for the law: the line, or a
    parabola that opens upwards where that explains far more.
    """
    slope, intercept = statistics.linear_regression(sizes, values)
    right = intercept + slope * max(sizes)
    climbs = slope * (max(sizes) - min(sizes)) / right if right else 0.0
    line = [intercept, slope]
    parabola = [float(x) for x in np.polynomial.polynomial.polyfit(sizes, values, 2)]
    left_over, left_by_parabola = (_unexplained(c, sizes, values) for c in (line, parabola))
    bends = parabola[2] > 0 and left_over > 0.01 and left_by_parabola < left_over / 4
    order = "unclear"
    if abs(climbs) < _FLAT:
        order = "O(1)"
    elif climbs > _GROWS and bends:
        order = f"O({variable}²)"
    elif climbs > _GROWS and left_over < 0.1:
        order = f"O({variable})"
    return {
        "slope": slope,
        "intercept": intercept,
        "curve": parabola if order.endswith("²)") else line,
        "r2": 1 - left_over,
        "climbs": climbs,
        "order": order,
    }


def _unexplained(curve: Sequence[float], sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the share of the variance of ``values`` that a polynomial leaves."""
    mean = statistics.fmean(values)
    spread = sum((v - mean) ** 2 for v in values)
    fitted = np.polynomial.polynomial.polyval(np.asarray(sizes, dtype=float), curve)
    error = sum((v - f) ** 2 for v, f in zip(values, fitted, strict=True))
    return float(error / spread) if spread else 0.0


def _checks(methods: Sequence[dict[str, Any]]) -> list[Check]:
    """The entries of the paper's table, but for the peak, which depends on the solver's memory."""
    climbs = {m["name"]: {q: m["fits"][q]["climbs"] for q in QUANTITIES} for m in methods}
    grows = [(name, "seconds") for name in climbs] + [("UPG", "graph_bytes")]
    flat = [(name, "graph_bytes") for name in climbs if name != "UPG"] + [("NPG", "peak_bytes")]
    return [
        *(Check.above(f"{name}: {q} grow", climbs[name][q], _GROWS) for name, q in grows),
        *(Check.below(f"{name}: {q} do not grow", climbs[name][q], _FLAT) for name, q in flat),
    ]
