"""What solvers add to an evaluation of the map, counted in operations of torch."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from phantomgrad import Anderson, Broyden, FixedPoint, Solver, Steps


class Operations(TorchDispatchMode):
    """Counts operations, views included."""

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def operations(solver: Solver) -> int:
    z0 = torch.linspace(-1, 1, 12).view(3, 4)
    with Operations() as counted:
        solver.solve(lambda z: torch.cos(z + z0), z0)
    return counted.count


@pytest.mark.parametrize(
    ("solver", "most"), [(FixedPoint(), 14), (Anderson(), 33), (Broyden(), 48), (Steps(12), 0)]
)
def test_operations_of_an_evaluation(solver: Solver, most: int) -> None:
    """They, and not the arithmetic, are what a solve of small states costs."""

    def spent(evaluations: int) -> int:
        if isinstance(solver, Steps):
            return operations(Steps(evaluations))
        return operations(replace(solver, max_evaluations=evaluations, tol=0))

    assert (spent(12) - spent(7)) / 5 - 2 <= most


def test_operations_of_a_solve_by_steps() -> None:
    assert operations(Steps(1)) - 2 <= 13
