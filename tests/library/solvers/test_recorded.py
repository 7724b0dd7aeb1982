"""A recorded solve takes the steps of the same solve without a graph."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from methods import SOLVERS
from problems import Affine

from phantomgrad.solvers import IterativeSolver


@dataclass(frozen=True, kw_only=True)
class HeavyBall(IterativeSolver):
    """A method with memory: the step is a decaying sum of all differences."""

    differentiable = True

    advanced: list = field(default_factory=list)

    def start(self, z0):
        step = torch.zeros_like(z0)

        def advance(z, fz, g):
            nonlocal step
            step = 0.5 * step + g
            self.advanced.append(None)
            return z + step

        return advance


ALL = {**SOLVERS, "heavy ball": HeavyBall()}


def points_of(solver, f, z0):
    """The points at which a solve evaluates f, and its solution."""
    points = []

    def seen(z):
        points.append(z.detach().clone())
        return f(z)

    return points, solver.solve(seen, z0)


@pytest.mark.parametrize("solver", ALL.values(), ids=ALL)
def test_recorded_or_not_the_iterates_are_the_same(solver):
    f = Affine.random()
    solver = replace(solver, max_evaluations=7, tol=0, record_trace=True)
    with torch.no_grad():
        points, expected = points_of(solver, f, f.zeros)
    recorded, found = points_of(solver, f, f.zeros)
    assert len(points) == len(recorded) == 7
    torch.testing.assert_close(recorded, points, rtol=0, atol=0)
    assert torch.equal(found.trace, expected.trace)
    assert torch.equal(found.z, expected.z)


@pytest.mark.parametrize("evaluations", [1, 4])
def test_a_recorded_solve_advances_once_an_evaluation(evaluations):
    """Also where the first evaluation is the last: its step puts the result on the graph."""
    solver, f = HeavyBall(max_evaluations=evaluations), Affine.random()
    z = solver.solve(f, f.zeros).z
    assert len(solver.advanced) == max(evaluations - 1, 1)
    assert z.requires_grad
