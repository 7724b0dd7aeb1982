"""Figure 4 (appendix): the gradient solver along its iterations, as conditioning gets worse."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping, check_several
from phantomgrad.jacobian import Linearization
from phantomgrad.gradients.phantom import damped_steps
from phantomgrad.models.synthetic import SyntheticCell, check_synthetic
from phantomgrad.nn.linear import Nonlinearity
from phantomgrad.solvers import Broyden, FixedPoint, Map
from phantomgrad.solvers.base import flat
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, Track, silently

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles over the samples that are recorded."""

_ILL = 0.999
"""The Lipschitz constant from which on the paper's ill-conditioning shows."""

QUANTITIES = ("objective", "relative_error", "cosine", "l1_norm")


@dataclass(frozen=True, kw_only=True)
class Dynamics(Study):
    r"""What solving for the gradient does, step by step (Geng et al., 2021, "Gradient Solver").

    With J the Jacobian at :math:`h^*`, found by fixed-point iteration, and v the gradient of the
    mean squared error by :math:`h^*`, Broyden's method solves
    :math:`\hat g = J^\top \hat g + v`. Along its iterates, and along k for the phantom gradients,
    four quantities are measured:

    .. math:: \|(I - J^\top) \hat g - v\|, \quad \|(I - J^\top) \hat g - v\| / \|\hat g\|, \quad
              \cos(\hat g, g), \quad \|\hat g\|_1

    where g is the exact solution, by a dense solve in float64. For UPG, :math:`\hat g` is what its
    backward pass sends to a constant added to F: the same quantity, defined for every estimator.

    Numbers: ``levels`` is a list, a :math:`L_h` each, of ``lipschitz``, the ``residual`` of
    :math:`h^*` (largest relative error), the ``condition`` of :math:`I - J^\top` (median over the
    rows), the ``l1_norm`` of g, and ``methods``: a list of ``name``, ``damping`` and, for each
    quantity, its quantiles (5, 25, 50, 75, 95 %) over the samples by iteration,
    ``(iterations, 5)``; they begin at the start :math:`\hat g = v` for Broyden, at k = 1 for the
    others.

    Args:
        nonlinearity: of F; the paper does not name it.
        lipschitz: the values of :math:`L_h`.
        size: D.
        rows: N.
        samples: number of pairs (u, y).
        iterations: of Broyden's method, and the largest k.
        dampings: the values of :math:`\lambda`.
        forward_iterations: of the fixed-point iteration.
    """

    nonlinearity: Nonlinearity = "tanh"
    lipschitz: Sequence[float] = (0.9, 0.99, 0.999, 0.9999)
    size: int = 128
    rows: int = 32
    samples: int = 50
    iterations: int = 30
    dampings: Sequence[float] = (0.5, 1.0)
    forward_iterations: int = 100

    def __post_init__(self) -> None:
        for name in ("rows", "samples", "iterations", "forward_iterations"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("lipschitz", "dampings"):
            check_several(name, getattr(self, name))
        for damping in self.dampings:
            check_damping(damping)
        for lipschitz in self.lipschitz:
            check_synthetic(lipschitz, self.nonlinearity)

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure every level; each has the same draws."""
        levels = [self._level(x, seed, device) for x in track(self.lipschitz, "levels")]
        worst = levels[-1]["methods"][0]["relative_error"][-1][2]
        return Findings(
            {"levels": levels, "shares": list(SHARES)},
            _checks(levels, self.nonlinearity == "linear" and max(self.lipschitz) >= _ILL),
            f"Broyden ends at a relative error of {worst:.2g} for L = {self.lipschitz[-1]}",
        )

    def _level(self, lipschitz: float, seed: int, device: torch.device) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, lipschitz, self.nonlinearity, generator).to(device)
        u, y = torch.randn(2, self.samples, self.rows, self.size, generator=generator).to(device)

        def f(h: Tensor) -> Tensor:
            return cell(h, u)  # type: ignore[no-any-return]

        solver = FixedPoint(max_evaluations=self.forward_iterations, tol=0)
        solution = solver.solve(f, torch.zeros_like(u))
        v = (solution.z - y) * (2 / (self.rows * self.size))
        jacobian = dense_jacobian(cell, u, solution.z)
        system = torch.eye(self.size, dtype=jacobian.dtype, device=device) - jacobian.mT
        exact = torch.linalg.solve(system, v.flatten(0, 1).double()).view(v.shape)
        judge = _Judge(Linearization(f, solution.z), v, exact)
        return {
            "lipschitz": lipschitz,
            "residual": float(solution.residual.max()),
            "condition": float(torch.linalg.cond(system).median()),
            "l1_norm": _quantiles(exact.abs().sum(dim=(1, 2))),
            "methods": [
                {"name": "Broyden", "damping": None, **judge.follow(self._broyden(judge))},
                *(
                    {"name": name, "damping": damping, **judge.follow(path)}
                    for damping in self.dampings
                    for name, path in (
                        ("NPG", self._neumann(judge, damping)),
                        ("UPG", self._unrolled(f, solution.z, v, damping)),
                    )
                ),
            ],
        }

    def _broyden(self, judge: _Judge) -> Iterator[Tensor]:
        """Yield the arguments at which the solver evaluates its map: its iterates."""
        iterates: list[Tensor] = []

        def op(g: Tensor) -> Tensor:
            iterates.append(g.clone())
            return judge.image(g)

        Broyden(max_evaluations=self.iterations + 1, tol=0).solve(op, judge.v)
        yield from iterates

    def _neumann(self, judge: _Judge, damping: float) -> Iterator[Tensor]:
        total = judge.v
        for _ in range(self.iterations):
            yield damping * total
            total = torch.lerp(total, judge.at.vjp(total), damping) + judge.v

    def _unrolled(self, f: Map, z: Tensor, v: Tensor, damping: float) -> Iterator[Tensor]:
        constant = torch.zeros_like(z, requires_grad=True)
        for h in damped_steps(lambda h: f(h) + constant, z, self.iterations, damping):
            yield torch.autograd.grad(h, constant, v, retain_graph=True)[0]


class _Judge(NamedTuple):
    """The linear system at an equilibrium and its exact solution."""

    at: Linearization
    v: Tensor
    exact: Tensor

    def image(self, g: Tensor) -> Tensor:
        """Return ``J^T g + v``."""
        return self.at.vjp(g) + self.v

    def follow(self, path: Iterator[Tensor]) -> dict[str, list[list[float]]]:
        """Return the quantiles of every quantity along ``path``."""
        measured = [self._judge(g) for g in path]
        return {name: [_quantiles(step[name]) for step in measured] for name in QUANTITIES}

    def _judge(self, g: Tensor) -> dict[str, Tensor]:
        objective = torch.linalg.vector_norm(flat(self.image(g) - g).double(), dim=1)
        ours, exact = flat(g).double(), flat(self.exact)
        return {
            "objective": objective,
            "relative_error": objective / torch.linalg.vector_norm(ours, dim=1),
            "cosine": torch.cosine_similarity(ours, exact, dim=1),
            "l1_norm": ours.abs().sum(dim=1),
        }


def dense_jacobian(cell: SyntheticCell, u: Tensor, z: Tensor) -> Tensor:
    """Return the Jacobian of every row in float64, ``(B N, D, D)``, from D products."""
    double = SyntheticCell(z.shape[-1], 1.0, cell.nonlinearity).to(z.device, torch.float64)
    double.weight.copy_(cell.weight)
    rows, inputs = z.flatten(0, 1).double(), u.flatten(0, 1).double()
    at = Linearization(lambda h: double(h, inputs), rows)
    basis = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    return torch.stack([at.vjp(e.expand_as(rows)) for e in basis], dim=1)


def _quantiles(values: Tensor) -> list[float]:
    values = values.masked_fill(values.isnan(), torch.inf)
    shares = torch.tensor(SHARES, dtype=values.dtype, device=values.device)
    return [float(f"{float(x):.6g}") for x in torch.quantile(values, shares)]


def _checks(levels: list[dict[str, Any]], ill_conditioned: bool) -> list[Check]:
    """Put to the test what the paper says of the worst level, where it is ill-conditioned at all.

    Broyden's objective rises far above its start, its norm explodes, and its cosine oscillates;
    the phantom gradients keep to a moderate norm, and never get worse than their start.
    """
    worst = max(levels, key=lambda level: float(level["lipschitz"]))
    broyden, *phantoms = worst["methods"]
    checks = [
        Check.below(
            "largest objective of a phantom gradient over that of k = 1 (medians)",
            max(step[2] / m["objective"][0][2] for m in phantoms for step in m["objective"]),
            1.001,
        ),
    ]
    if not ill_conditioned:
        return checks
    peak = max(step[2] for step in broyden["l1_norm"])
    phantom_peak = max(step[2] for m in phantoms for step in m["l1_norm"])
    lows = [step[0] for step in broyden["cosine"]]
    falls = max(before - after for before, after in itertools.pairwise(lows))
    objectives = [step[2] for step in broyden["objective"]]
    return [
        *checks,
        Check.above(
            "largest objective of Broyden over its start", max(objectives) / objectives[0], 10
        ),
        Check.above(
            "largest norm of Broyden over that of the phantom gradients", peak / phantom_peak, 10
        ),
        Check.above("largest fall of Broyden's cosine in a step (5 % of samples)", falls, 0.1),
    ]
