"""What solvers add to an evaluation of the map, counted in operations of torch."""

from dataclasses import replace

import pytest
import torch
from problems import Dispatched

from phantomgrad import Anderson, Broyden, FixedPoint, Steps


def operations(solver):
    z0 = torch.linspace(-1, 1, 12).view(3, 4)
    seen = []
    with Dispatched(lambda operation, _: seen.append(operation)):
        solver.solve(lambda z: torch.cos(z + z0), z0)
    return len(seen)


@pytest.mark.parametrize(
    ("solver", "most"), [(FixedPoint(), 9), (Anderson(), 22), (Broyden(), 39), (Steps(12), 0)]
)
def test_operations_of_an_evaluation(solver, most):
    """They, and not the arithmetic, are what a solve of small states costs."""

    def spent(evaluations):
        if isinstance(solver, Steps):
            return operations(Steps(evaluations))
        return operations(replace(solver, max_evaluations=evaluations, tol=0))

    assert (spent(12) - spent(7)) / 5 - 2 <= most


def test_operations_of_a_solve_by_steps():
    assert operations(Steps(1)) - 2 <= 13
