"""Under autocast ``f`` may run in low precision; the solver itself must not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from phantomgrad import Anderson, Broyden, FixedPoint, Solver


def full_precision(z: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        weight = 0.9 * torch.eye(z.shape[1], dtype=z.dtype).roll(1, dims=0)
        return torch.tanh(z @ weight + torch.linspace(-1, 1, z.shape[1], dtype=z.dtype))


@pytest.mark.parametrize(
    "solver",
    [
        FixedPoint(max_evaluations=60, tol=0),
        Anderson(max_evaluations=20, tol=0),
        Broyden(max_evaluations=20, tol=0),
        Broyden(max_evaluations=20, tol=0, line_search=True),
    ],
    ids=repr,
)
def test_autocast_changes_nothing_outside_f(solver: Solver) -> None:
    """With an f that opts out of autocast, the solve is the one without autocast, bit by bit."""
    z0 = torch.zeros(2, 16, dtype=torch.float32)
    expected = solver.solve(full_precision, z0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = solver.solve(full_precision, z0)
    assert solution.z.dtype == torch.float32
    assert torch.equal(solution.z, expected.z)
    assert torch.equal(solution.residual, expected.residual)
