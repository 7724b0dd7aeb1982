"""Theorem 2 in the synthetic setting: how fast the two phantom gradients become exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping
from phantomgrad.gradients import UnrolledPhantomGradient
from phantomgrad.models.synthetic import SyntheticCell
from phantomgrad.nn.linear import Nonlinearity
from phantomgrad.solvers import FixedPoint, Map
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, Track, silently
from phantomgrad_suite.studies.factors import Dense, Vector

_SOLVER = FixedPoint(max_evaluations=20_000, tol=1e-15)
_FLOOR = 1e-12  # relative errors below it are rounding, and no part of a fit
_RATE = 0.05  # how far a fitted rate may be from its limit, relative to it
_UNROLLED_RATE = 0.1  # likewise where a factor k slows the decay, by 1 + 1/k a step
_SLACK = 1e-9  # rounding of a bound, relative to the limit


@dataclass(frozen=True)
class SeriesStudy(Study):
    r"""The errors of the Neumann series and of the unrolled Jacobian, against k.

    Part (i), with :math:`M = \partial F / \partial h` and :math:`B = \lambda M + (1 - \lambda) I`:

    .. math:: \Big\| \lambda \sum_{i<k} B^i - (I - M)^{-1} \Big\| = \|B^k (I - M)^{-1}\|
              \le \|B\|^k \|(I - M)^{-1}\| \le \frac{\lambda \|B\|^k}{1 - \|B\|}

    The rest of the series is :math:`B^k` times its limit, hence the first bound, and the second
    (the paper's) as the limit is :math:`\lambda (I - B)^{-1}`. The first one is tested. Part (ii)
    is the Jacobian of k damped steps by the input u, from starts that are no equilibria, against
    the exact one; both errors decay like :math:`\rho(B)^k` in the end, in (ii) with a factor k.

    ``numbers``: ``steps``, the values of k; ``neumann``, for each Lipschitz constant and lambda
    ``lipschitz``, ``damping``, ``norm`` (of B), ``radius`` (:math:`\rho(B)`), ``error`` by k over
    the norm of the limit, ``looseness`` (the paper's bound over the tested one) and ``rate``,
    fitted to the second half of the errors above rounding; ``unrolled`` likewise ``lipschitz``,
    ``damping``, ``norm``, ``radius``, ``start`` (``zero``, ``rough``), ``error``, ``rate``.

    Args:
        size: D, the width of the state; there is one sample for each Lipschitz constant.
        lipschitz: the values of :math:`L_h`, each in (0, 1).
        steps: the values of k, rising.
        dampings: the values of :math:`\lambda`.
        rough_steps: evaluations of F in the rough solve that the second start comes from.
        nonlinearity: of the cell.
    """

    size: int = 64
    lipschitz: Sequence[float] = (0.5, 0.9, 0.99)
    steps: Sequence[int] = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 50, 60, 80, 100, 120, 140, 160)
    dampings: Sequence[float] = (0.5, 0.8, 1.0)
    rough_steps: int = 5
    nonlinearity: Nonlinearity = "tanh"

    def __post_init__(self) -> None:
        check_at_least("rough_steps", self.rough_steps, 1)
        if list(self.steps) != sorted(set(self.steps)) or len(self.steps) < 4:
            raise ValueError(f"steps must be at least four rising numbers, got {self.steps}")
        check_at_least("steps", self.steps[0], 1)
        for value in self.dampings:
            check_damping(value)
        for value in self.lipschitz:
            if not 0 < value < 1:
                raise ValueError(f"lipschitz must lie in (0, 1), got {value}")

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure both parts at one state for each Lipschitz constant."""
        generator = torch.Generator().manual_seed(seed)
        samples = {norm: self._sample(norm, generator, device) for norm in self.lipschitz}
        neumann, unrolled = [], []
        for norm, damping in track(list(product(samples, self.dampings)), "lipschitz, lambda"):
            sample = samples[norm]
            case = {"lipschitz": norm, "damping": damping, **sample.damped(damping)}
            neumann.append({**case, **self._curve(sample.series_errors(damping, self.steps))})
            for start in ("zero", "rough"):
                curve = self._curve(sample.unrolled_errors(damping, self.steps, start))
                unrolled.append({**case, "start": start, **curve})
        numbers = {"steps": list(self.steps), "neumann": neumann, "unrolled": unrolled}
        checks = self._checks(neumann, unrolled)
        worst = _worst([*neumann, *unrolled])
        return Findings(numbers, checks, f"fitted rates within {worst:.1%} of rho(B)")

    def _sample(self, norm: float, generator: torch.Generator, device: torch.device) -> _Sample:
        cell = SyntheticCell(self.size, norm, self.nonlinearity, generator)
        cell = cell.to(device, torch.float64)
        u = torch.randn(1, self.size, generator=generator, dtype=torch.float64).to(device)
        return _Sample(cell, u, self.rough_steps)

    def _curve(self, errors: list[float]) -> dict[str, Any]:
        return {"error": errors, "rate": fitted_rate(self.steps, errors)}

    def _checks(self, neumann: list[dict[str, Any]], unrolled: list[dict[str, Any]]) -> list[Check]:
        excess = max(
            error - case["norm"] ** k
            for case in neumann
            for k, error in zip(self.steps, case["error"], strict=True)
        )
        return [
            Check.below("(i) error over its bound, in units of the limit", excess, _SLACK),
            Check.below("(i) norm of B", max(case["norm"] for case in neumann), 1),
            Check.below("(i) fitted rate beside rho(B)", _worst(neumann), _RATE),
            Check.below("(ii) fitted rate beside rho(B)", _worst(unrolled), _UNROLLED_RATE),
            Check.below(
                "(ii) error at the last k over the one at the first",
                max(case["error"][-1] / case["error"][0] for case in unrolled),
                1e-3,
            ),
        ]


def fitted_rate(steps: Sequence[int], errors: Sequence[float]) -> float:
    """Return the factor per step that fits the second half of the errors above rounding."""
    kept = [(k, error) for k, error in zip(steps, errors, strict=True) if error > _FLOOR]
    half = kept[min(len(kept) // 2, len(kept) - 2) :]
    if len(half) < 2:
        return float("nan")
    k, error = np.array(half).T
    return float(np.exp(np.polyfit(k, np.log(error), 1)[0]))


def _worst(cases: list[dict[str, Any]]) -> float:
    return max(abs(float(case["rate"]) / float(case["radius"]) - 1) for case in cases)


class _Sample:
    """A cell with one input: its equilibrium, and the limits of both parts."""

    def __init__(self, cell: SyntheticCell, u: Tensor, rough_steps: int) -> None:
        self._cell, self._u = cell, u.requires_grad_()
        f: Map = lambda h: cell(h, u)  # noqa: E731
        zero = torch.zeros_like(u)
        self._starts = {
            "zero": zero,
            "rough": FixedPoint(max_evaluations=rough_steps, tol=0).solve(f, zero).z,
        }
        self._factors = Dense(f, _SOLVER.solve(f, zero).z, [u])
        identity = self._factors.identity
        self._limit = np.linalg.inv(identity - self._factors.by_state)
        self._exact = self._factors.by_wanted @ self._limit

    def damped(self, damping: float) -> dict[str, float]:
        """Return what there is to know of B."""
        b = damping * self._factors.by_state + (1 - damping) * self._factors.identity
        norm, limit = float(np.linalg.norm(b, 2)), float(np.linalg.norm(self._limit, 2))
        radius = float(np.abs(np.linalg.eigvals(b)).max())
        return {"norm": norm, "radius": radius, "looseness": damping / (1 - norm) / limit}

    def series_errors(self, damping: float, steps: Sequence[int]) -> list[float]:
        """Return the error of the truncated series for each k, over the norm of the limit."""
        return [_error(self._factors.series(k, damping), self._limit) for k in steps]

    def unrolled_errors(self, damping: float, steps: Sequence[int], start: str) -> list[float]:
        """Return the error of the Jacobian of k steps by u for each k, likewise."""
        return [_error(self._unrolled(k, damping, start), self._exact) for k in steps]

    def _unrolled(self, k: int, damping: float, start: str) -> Vector:
        # One copy of the sample for each cotangent gives all columns in one backward pass.
        size = self._u.numel()
        u = self._u.detach().repeat(size, 1).requires_grad_()
        h0 = self._starts[start].expand(size, size)
        h = UnrolledPhantomGradient(k, damping).attach(lambda h: self._cell(h, u), h0)
        (rows,) = torch.autograd.grad(h, u, torch.eye(size, dtype=u.dtype, device=u.device))
        columns: Vector = rows.T.cpu().numpy()
        return columns


def _error(matrix: Vector, limit: Vector) -> float:
    error = np.linalg.norm(matrix - limit, 2) / np.linalg.norm(limit, 2)
    return float(f"{error:.6g}")
