"""Every solver, a map to test it on, and an independent computation of its residual."""

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
