"""What every solver promises to a sample: whatever the others do, its solution is its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import Affine, Counted, Map
from solvers.cases import every_solver, tanh_map
from torch import Tensor

from phantomgrad import FixedPoint, Solution, Solver


def assert_same_solution(ours: Solution, other: Solution, tolerance: float) -> None:
    """Equal states and residuals to a tolerance, equal counts."""
    torch.testing.assert_close(ours.z, other.z, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours.residual, other.residual, rtol=1e-4, atol=tolerance)
    assert torch.equal(ours.evaluations, other.evaluations)
    assert torch.equal(ours.converged, other.converged)


@every_solver
def test_a_converged_sample_is_frozen(solver: Solver) -> None:
    """Its state is bitwise the visited one, and the same however long the others take."""
    f, z0 = tanh_map(), torch.zeros(4, 5)
    solver = replace(solver, tol=1e-4, max_evaluations=100)
    solution = solver.solve(f, z0)
    first = int(solution.evaluations.argmin())
    assert solution.evaluations[first] < solution.evaluations.max()
    counted = Counted(f)
    solver.solve(counted, z0)
    stop = int(solution.evaluations[first]) - 1
    assert torch.equal(solution.z[first], counted.points[stop][first])


@pytest.mark.parametrize("damping", [0.7, 1.0])
def test_a_frozen_sample_is_bitwise_what_it_is_alone(damping: float) -> None:
    """Of an elementwise map, solved by an elementwise method, not a bit depends on the batch."""
    slopes = torch.tensor([[0.1], [0.5], [0.9]])
    solver = FixedPoint(tol=1e-6, max_evaluations=300, damping=damping)
    together = solver.solve(lambda z: slopes * torch.cos(z) + 1, torch.zeros(3, 7))
    for sample in range(3):
        alone = solver.solve(
            lambda z, s=slopes[sample : sample + 1]: s * torch.cos(z) + 1, torch.zeros(1, 7)
        )
        assert torch.equal(together.z[sample], alone.z[0])
        assert torch.equal(together.residual[sample], alone.residual[0])
        assert together.evaluations[sample] == alone.evaluations[0]


@every_solver
def test_the_composition_of_the_batch_does_not_matter(solver: Solver) -> None:
    """Permuted, split or alone, a sample gets the same solution."""
    affine = Affine.random(batch=5)
    solver = replace(solver, tol=1e-7, max_evaluations=60)
    together = solver.solve(affine, affine.zeros)
    order = torch.tensor([3, 1, 4, 0])
    part = Affine(affine.weight[order], affine.bias[order])
    picked = Solution(*(t[order] for t in together[:5]))
    assert_same_solution(solver.solve(part, part.zeros), picked, 1e-9)


def broken(f: Map, sample: int, value: float, first: int) -> Map:
    """``f``, spoiled for one sample from evaluation number ``first`` (0 = always) on."""
    calls = 0

    def spoiled(z: Tensor) -> Tensor:
        nonlocal calls
        fz = f(z).clone()
        if calls >= first:
            fz[sample] = value
        calls += 1
        return fz

    return spoiled


@every_solver
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.parametrize("first", [0, 3])
def test_a_broken_sample_touches_no_other(
    solver: Solver, value: float, norm: str, stop: str, first: int
) -> None:
    """It stops, unconverged, with its best finite iterate; the rest is as without it."""
    f, z0 = tanh_map(), torch.full((4, 5), 0.1)
    solver = replace(solver, tol=1e-8, max_evaluations=60, norm=norm, stop=stop)
    solution = solver.solve(broken(f, 1, value, first), z0)
    healthy, others = solver.solve(f, z0), [0, 2, 3]
    assert torch.equal(solution.z[others], healthy.z[others])
    assert torch.equal(solution.residual[others], healthy.residual[others])
    assert torch.equal(solution.evaluations[others], healthy.evaluations[others])
    assert not solution.converged[1]
    assert solution.evaluations[1] == first + 1
    truncated = replace(solver, max_evaluations=max(first, 1)).solve(f, z0)
    assert torch.equal(solution.z[1], truncated.z[1])
    assert solution.residual[1] == (truncated.residual[1] if first else torch.inf)


@every_solver
def test_a_start_that_is_not_finite_is_returned_unconverged(solver: Solver) -> None:
    """There is no finite iterate to return; the other sample does not notice."""
    z0 = torch.zeros(4, 5)
    z0[2] = torch.nan
    solution, clean = solver.solve(tanh_map(), z0), solver.solve(tanh_map(), torch.zeros(4, 5))
    assert solution.residual[2] == torch.inf
    assert not solution.converged[2]
    assert torch.equal(solution.z[[0, 1, 3]], clean.z[[0, 1, 3]])
