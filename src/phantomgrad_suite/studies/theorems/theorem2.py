"""Theorem 2 in the synthetic setting: how fast the two phantom gradients become exact."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phantomgrad.diagnostics import estimated_gradient
from phantomgrad.gradients import UnrolledPhantomGradient
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies import base
from phantomgrad_suite.studies.base import Findings, Matrix, Study, rounded
from phantomgrad_suite.studies.synthetic import Nonlinearity, SyntheticCell

_SOLVER = FixedPoint(max_evaluations=20_000, tol=1e-15)
_FLOOR = 1e-12  # relative errors below it are rounding and left out of a fit
_RATE = 0.05  # how far a fitted rate may be from its limit, relative to it
_UNROLLED_RATE = 0.1  # the same, where a factor k slows the decay by 1 + 1/k a step
_SLACK = 1e-9  # rounding of a bound, relative to the limit

Case = dict[str, Any]


@dataclass(frozen=True)
class SeriesConvergence(Study):
    r"""The errors of the Neumann series and of the unrolled Jacobian, against k.

    Part (i), with :math:`M = \partial F / \partial h` and :math:`B = \lambda M + (1 - \lambda) I`:

    .. math:: \Big\| \lambda \sum_{i<k} B^i - (I - M)^{-1} \Big\| = \|B^k (I - M)^{-1}\|
              \le \|B\|^k \|(I - M)^{-1}\| \le \frac{\lambda \|B\|^k}{1 - \|B\|}

    The rest of the series is :math:`B^k` times its limit, hence the first bound, and the second
    (the paper's) as the limit is :math:`\lambda (I - B)^{-1}`. The first one is tested; the
    ``looseness`` is the second over the first. Part (ii) is the Jacobian of k damped steps by the
    input u, from starts that are not equilibria, against the exact one; both errors decay like
    :math:`\rho(B)^k` in the end, in (ii) with a factor k. Errors are relative to the limit. The
    starts are zero and a rough solve of ``rough_steps``.
    """

    size: int = 64
    lipschitz: Sequence[float] = (0.5, 0.9, 0.99)
    steps: Sequence[int] = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 50, 60, 80, 100, 120, 140, 160)
    dampings: Sequence[float] = (0.5, 0.8, 1.0)
    rough_steps: int = 5
    nonlinearity: Nonlinearity = "tanh"

    def measure(self, seed: int, device: torch.device) -> Findings:
        generator = torch.Generator().manual_seed(seed)
        neumann: list[Case] = []
        unrolled: list[Case] = []
        for norm in base.progress(self.lipschitz):
            cell, u = base.synthetic_problem(self, norm, generator, device)
            f, zero = partial(cell, u=u), torch.zeros_like(u)
            rough = FixedPoint(max_evaluations=self.rough_steps, tol=0).solve(f, zero).z
            m = base.as_matrix(base.dense_jacobian(cell, _SOLVER.solve(f, zero).z, u)[0])
            limit = np.linalg.inv(np.eye(self.size) - m)
            for damping in self.dampings:
                case = {"lipschitz": norm, "damping": damping, **_of_b(m, limit, damping)}
                series = base.truncated_series(m, damping, self.steps)
                neumann.append({**case, **self._curve([series[k] for k in self.steps], limit)})
                for start, h in (("zero", zero), ("rough", rough)):
                    jacobians = [unrolled_jacobian(cell, u, h, k, damping) for k in self.steps]
                    curve = self._curve(jacobians, m @ limit)  # M is dF/du, too
                    unrolled.append({**case, "start": start, **curve})
        numbers = {"steps": list(self.steps), "neumann": neumann, "unrolled": unrolled}
        return Findings(numbers, self._checks(neumann, unrolled))

    def _curve(self, estimates: Sequence[Matrix], limit: Matrix) -> Case:
        size = np.linalg.norm(limit, 2)
        errors = [rounded(float(np.linalg.norm(e - limit, 2) / size), 6) for e in estimates]
        return {"error": errors, "rate": fitted_rate(self.steps, errors)}

    def _checks(self, neumann: list[Case], unrolled: list[Case]) -> list[Check]:
        excess = max(
            error - case["norm"] ** k
            for case in neumann
            for k, error in zip(self.steps, case["error"], strict=True)
        )
        norm, rates = max(case["norm"] for case in neumann), map(_worst_rate, (neumann, unrolled))
        decay = max(case["error"][-1] / case["error"][0] for case in unrolled)
        return [
            Check.below("(i) error over its bound, in units of the limit", excess, _SLACK),
            Check.below("(i) norm of B", norm, 1),
            Check.below("(i) fitted rate against rho(B)", next(rates), _RATE),
            Check.below("(ii) fitted rate against rho(B)", next(rates), _UNROLLED_RATE),
            Check.below("(ii) error at the last k over the one at the first", decay, 1e-3),
        ]


def _of_b(m: Matrix, limit: Matrix, damping: float) -> Case:
    b = damping * m + (1 - damping) * np.eye(len(m))
    norm = float(np.linalg.norm(b, 2))
    return {
        "norm": norm,
        "radius": float(np.abs(np.linalg.eigvals(b)).max()),
        "looseness": damping / (1 - norm) / float(np.linalg.norm(limit, 2)),
    }


def unrolled_jacobian(
    cell: SyntheticCell, u: Tensor, h: Tensor, steps: int, damping: float
) -> Matrix:
    """Return the Jacobian with respect to ``u`` of damped steps from ``h``, for cotangents."""
    # One copy of the sample for each cotangent gives all columns in one backward pass.
    size = u.numel()
    u = u.repeat(size, 1).requires_grad_()
    eye = torch.eye(size, dtype=u.dtype, device=u.device)
    estimator = UnrolledPhantomGradient(steps, damping)
    (rows,) = estimated_gradient(lambda h: cell(h, u), h.expand(size, size), eye, estimator, [u])
    columns: Matrix = rows.T.cpu().numpy()
    return columns


def fitted_rate(steps: Sequence[int], errors: Sequence[float]) -> float:
    """Return the factor per step that fits the second half of the errors above rounding."""
    kept = [(k, error) for k, error in zip(steps, errors, strict=True) if error > _FLOOR]
    half = kept[min(len(kept) // 2, len(kept) - 2) :]
    if len(half) < 2:
        return float("nan")
    k, error = np.array(half).T
    return float(np.exp(np.polyfit(k, np.log(error), 1)[0]))


def _worst_rate(cases: list[Case]) -> float:
    return max(abs(float(case["rate"]) / float(case["radius"]) - 1) for case in cases)
