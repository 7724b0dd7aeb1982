"""Every gradient estimator, with a solver for it."""

from __future__ import annotations

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

SOLVER = Broyden(max_evaluations=60, tol=1e-12)
PICARD = FixedPoint(max_evaluations=30, tol=0)
ESTIMATORS: dict[str, tuple[Solver, GradientEstimator]] = {
    "implicit": (SOLVER, ImplicitGradient(solver=SOLVER)),
    "implicit, at the image": (SOLVER, ImplicitGradient(solver=SOLVER, at="image")),
    "implicit, order 2": (SOLVER, ImplicitGradient(solver=SOLVER, order=2)),
    "unrolled": (SOLVER, UnrolledPhantomGradient(5, 0.5)),
    "neumann": (SOLVER, NeumannPhantomGradient(5, 0.5)),
    "neumann, of the image": (SOLVER, NeumannPhantomGradient(5, 0.5, "image")),
    "through the solver": (PICARD, BackpropThroughSolver()),
}
every_estimator = pytest.mark.parametrize(
    ("solver", "gradient"), ESTIMATORS.values(), ids=ESTIMATORS
)


def parameter_gradients(deq: DEQ, x: Tensor) -> tuple[Tensor, ...]:
    """The gradients of ``sum z*^2`` by every parameter of the cell."""
    z, _ = deq(x)
    return torch.autograd.grad(z.square().sum(), list(deq.parameters()))
