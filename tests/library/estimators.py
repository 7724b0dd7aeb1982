"""Every gradient estimator, with a solver for it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from phantomgrad import (
    DEQ,
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
