"""Every solver, a map to try it on, and its residual computed from scratch."""

from __future__ import annotations

import pytest
import torch
from problems import Map, TanhCell
from torch import Tensor

from phantomgrad import Anderson, Broyden, FixedPoint, Solver

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


def tanh_map(batch: int = 4, size: int = 5, norm: float = 0.9) -> Map:
    """A contraction; samples of high index sit deeper in the saturation and converge sooner."""
    cell, x = TanhCell(size, norm), torch.linspace(0, 3, batch).unsqueeze(1).repeat(1, size)
    return lambda z: cell(z, x[: len(z)]).detach()


def residual_of(solver: Solver, f: Map, z: Tensor) -> Tensor:
    """The documented residual, computed from scratch."""
    fz = f(z).flatten(1)
    g = fz - z.flatten(1)
    order = {"l2": 2, "max": torch.inf}[solver.norm]
    size = torch.linalg.vector_norm(g, ord=order, dim=1)
    if solver.stop == "relative":
        size = size / torch.linalg.vector_norm(fz, ord=order, dim=1)
    return size
