"""What every solver refuses: bad options, maps that keep no shape, starts that are no states."""

from __future__ import annotations

import pytest
import torch
from solvers.cases import every_solver
from torch import Tensor

from phantomgrad import Anderson, Broyden, FixedPoint, Solver


@pytest.mark.parametrize("kind", [FixedPoint, Anderson, Broyden])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_evaluations": 0}, "max_evaluations must be at least 1, got 0"),
        ({"max_evaluations": 10.5}, "max_evaluations must be an integer, got 10.5"),
        ({"tol": None}, "tol must be a number, got None"),
        ({"tol": -1e-3}, "tol must not be negative, got -0.001"),
        ({"tol": float("nan")}, "tol must not be negative, got nan"),
        ({"stop": "rel"}, "stop must be 'relative' or 'absolute', got 'rel'"),
        ({"norm": "l1"}, "norm must be 'l2' or 'max', got 'l1'"),
    ],
)
def test_a_refused_option_is_named(
    kind: type[Solver], options: dict[str, object], message: str
) -> None:
    """The error says which argument, which rule, and what it got."""
    with pytest.raises(ValueError, match=message):
        kind(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [FixedPoint, Anderson, Broyden])
def test_an_unknown_option_is_refused(kind: type[Solver]) -> None:
    """A misspelt option fails; options have no positions."""
    with pytest.raises(TypeError, match="max_iter"):
        kind(max_iter=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        kind(3)  # type: ignore[misc]


@every_solver
def test_f_must_keep_the_shape(solver: Solver) -> None:
    """Also where broadcasting would have hidden it."""
    with pytest.raises(ValueError, match=r"it maps \(2, 3\) to \(2, 1\)"):
        solver.solve(lambda z: z[:, :1], torch.zeros(2, 3))


@every_solver
def test_f_must_keep_the_device(solver: Solver) -> None:
    """The error names both devices."""
    with pytest.raises(ValueError, match=r"z is on cpu, f\(z\) on meta"):
        solver.solve(lambda z: z.to("meta"), torch.zeros(2, 3))


@every_solver
def test_f_must_return_one_tensor(solver: Solver) -> None:
    """A tuple is not a state; packing makes one of it."""
    with pytest.raises(TypeError, match="f must return one tensor, got tuple"):
        solver.solve(lambda z: (z, z), torch.zeros(2, 3))  # type: ignore[arg-type, return-value]


@every_solver
def test_f_must_leave_its_argument_alone(solver: Solver) -> None:
    """The iterates would be others than those whose residuals are in the books."""
    with pytest.raises(ValueError, match="f must not change its argument in place"):
        solver.solve(lambda z: torch.tanh(z.add_(1)), torch.zeros(2, 3))


@every_solver
def test_f_may_change_what_it_made_in_inference_mode_too(solver: Solver) -> None:
    z0 = torch.zeros(2, 3)
    expected = solver.solve(lambda z: z.cos().mul_(0.5), z0)
    with torch.inference_mode():
        found = solver.solve(lambda z: z.cos().mul_(0.5), z0.clone())
    assert torch.equal(found.z, expected.z)


@pytest.mark.parametrize(
    ("z0", "message"),
    [
        (torch.tensor(1.0), "z0 must have a batch dimension"),
        (torch.zeros(2, 3, dtype=torch.long), "z0 must be a floating-point tensor, got torch.int"),
    ],
)
def test_the_start_must_be_a_floating_point_batch(z0: Tensor, message: str) -> None:
    """Neither a scalar nor integers are states."""
    with pytest.raises(ValueError, match=message):
        FixedPoint().solve(lambda z: z, z0)
