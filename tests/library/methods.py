"""Every solver, and every gradient estimator with a solver for it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from problems import Map, TanhCell
from torch import Tensor

from phantomgrad import (
    DEQ,
    Anderson,
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
)


class Parts(NamedTuple):
    """An estimator and a solver for it."""

    solver: Solver
    gradient: GradientEstimator


SOLVER = Broyden(max_evaluations=60, tol=1e-12)
PICARD = FixedPoint(max_evaluations=30, tol=0)
ESTIMATORS = {
    "implicit": Parts(SOLVER, ImplicitGradient(solver=SOLVER)),
    "implicit, at the image": Parts(SOLVER, ImplicitGradient(solver=SOLVER, at="image")),
    "implicit, order 2": Parts(SOLVER, ImplicitGradient(solver=SOLVER, order=2)),
    "unrolled": Parts(SOLVER, UnrolledPhantomGradient(5, 0.5)),
    "neumann": Parts(SOLVER, NeumannPhantomGradient(5, 0.5)),
    "neumann, of the image": Parts(SOLVER, NeumannPhantomGradient(5, 0.5, "image")),
    "through the solver": Parts(PICARD, BackpropThroughSolver()),
}
every_estimator = pytest.mark.parametrize("parts", ESTIMATORS.values(), ids=ESTIMATORS)


def parameter_gradients(deq: DEQ, x: Tensor) -> tuple[Tensor, ...]:
    """The gradients of ``sum z*^2`` by every parameter of the cell."""
    z, _ = deq(x)
    return torch.autograd.grad(z.square().sum(), list(deq.parameters()))


def short_gradients(adjoint: Solver) -> dict[str, GradientEstimator]:
    """Estimators that spend a fixed number of evaluations."""
    return {
        "implicit": ImplicitGradient(solver=adjoint, on_failure="ignore"),
        "implicit, at the image": ImplicitGradient(solver=adjoint, on_failure="ignore", at="image"),
        "unrolled": UnrolledPhantomGradient(3, 0.5),
        "neumann": NeumannPhantomGradient(3, 0.5),
        "neumann, of the image": NeumannPhantomGradient(3, 0.5, "image"),
    }


SOLVERS: dict[str, Solver] = {
    "fixed point": FixedPoint(),
    "damped fixed point": FixedPoint(damping=0.7),
    "anderson": Anderson(),
    "short anderson": Anderson(memory=2, damping=0.8),
    "broyden": Broyden(),
    "short broyden": Broyden(memory=3),
    "searched broyden": Broyden(line_search=True),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
every_stop = pytest.mark.parametrize("stop", ["relative", "absolute"])
every_norm = pytest.mark.parametrize("norm", ["l2", "rms", "max"])


def tanh_map(batch: int = 4, size: int = 5, norm: float = 0.9) -> Map:
    """A contraction; samples of high index are closer to saturation and converge sooner."""
    cell, x = TanhCell(size, norm), torch.linspace(0, 3, batch).unsqueeze(1).repeat(1, size)
    return lambda z: cell(z, x[: len(z)]).detach()


def residual_of(solver: Solver, f: Map, z: Tensor) -> Tensor:
    """The documented residual."""
    fz = f(z).flatten(1)
    g = fz - z.flatten(1)
    order = torch.inf if solver.norm == "max" else 2
    scale = g.shape[1] ** -0.5 if solver.norm == "rms" else 1
    size = scale * torch.linalg.vector_norm(g, ord=order, dim=1)
    if solver.stop == "relative":
        size = size / (scale * torch.linalg.vector_norm(fz, ord=order, dim=1))
    return size
