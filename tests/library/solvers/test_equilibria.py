"""What every solver finds: equilibria of any shape and precision, on a graph or off it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import Affine, Counted, Map
from solvers.cases import every_solver, tanh_map

from phantomgrad import FixedPoint, Solver

# Equilibria ---------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.parametrize("norm", ["l2", "max"])
def test_equilibrium_of_an_affine_map(solver: Solver, stop: str, norm: str) -> None:
    """Every solver, under every stopping rule, finds the closed-form equilibrium."""
    affine = Affine.random(norm=0.6)
    solver = replace(solver, max_evaluations=200, tol=1e-12, stop=stop, norm=norm)
    solution = solver.solve(affine, affine.zeros)
    assert solution.converged.all()
    torch.testing.assert_close(solution.z.detach(), affine.equilibrium(), rtol=0, atol=1e-10)


@every_solver
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 5]), min_size=0, max_size=4),
    batch=st.sampled_from([1, 2, 3]),
)
def test_states_of_every_shape(solver: Solver, shape: list[int], batch: int) -> None:
    """From one number per sample to four dimensions, odd sizes and ones included."""
    x = torch.linspace(-1, 1, batch).view(-1, *[1] * len(shape))
    f: Map = lambda z: 0.5 * torch.cos(z) + x  # noqa: E731
    solution = replace(solver, max_evaluations=100, tol=1e-11).solve(f, torch.zeros(batch, *shape))
    assert solution.z.shape == (batch, *shape)
    assert solution.converged.shape == (batch,)
    assert solution.converged.all()
    torch.testing.assert_close(f(solution.z), solution.z, rtol=0, atol=1e-10)


@every_solver
def test_strided_starts_are_read_in_order(solver: Solver) -> None:
    """A transposed or an expanded start is the same state as its contiguous copy."""
    f = tanh_map(batch=4, size=5)
    strided = torch.randn(5, 4).mT
    ours, copy = solver.solve(f, strided), solver.solve(f, strided.contiguous())
    torch.testing.assert_close(ours.z, copy.z, rtol=1e-13, atol=1e-13)
    expanded = solver.solve(f, torch.zeros(1, 1).expand(4, 5))
    torch.testing.assert_close(expanded.z, solver.solve(f, torch.zeros(4, 5)).z)


@every_solver
def test_the_start_is_not_modified(solver: Solver) -> None:
    """``z0`` belongs to the caller."""
    z0 = torch.randn(4, 5)
    before = z0.clone()
    solver.solve(tanh_map(), z0)
    assert torch.equal(z0, before)


@every_solver
def test_an_empty_batch_is_solved(solver: Solver) -> None:
    """No sample, no work, no error."""
    solution = solver.solve(lambda z: 0.5 * z, torch.zeros(0, 3))
    assert solution.z.shape == (0, 3)
    assert solution.residual.shape == (0,)


# Precision and graphs -----------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_states_keep_books_in_float32(solver: Solver, dtype: torch.dtype) -> None:
    """f sees its own dtype, residuals are float32, and the result is right to its precision."""
    f = Counted(lambda z: 0.5 * torch.cos(z))
    solution = replace(solver, tol=1e-2).solve(f, torch.zeros(2, 9, dtype=dtype))
    assert {point.dtype for point in f.points} == {dtype}
    assert solution.z.dtype == dtype
    assert solution.residual.dtype == torch.float32
    assert solution.converged.all()
    equilibrium = torch.full((2, 9), 0.450183611294874)
    torch.testing.assert_close(solution.z.double(), equilibrium, rtol=0, atol=1e-2)


@every_solver
def test_half_precision_iterates_are_not_rounded_between_evaluations(solver: Solver) -> None:
    """A step below the resolution of bfloat16 still adds up in the float32 state."""
    f: Map = lambda z: torch.full_like(z, 1.0)  # noqa: E731
    slow = FixedPoint(damping=0.002, max_evaluations=2000, tol=0.1)
    solution = slow.solve(f, torch.full((1, 1), 0.5, dtype=torch.bfloat16))
    assert solution.converged.all()
    assert solver.solve(f, torch.zeros(1, 1, dtype=torch.bfloat16)).z.dtype == torch.bfloat16


@every_solver
def test_the_dtype_of_f_may_differ(solver: Solver) -> None:
    """Under autocast f answers in half precision; the state keeps its own."""
    solution = replace(solver, tol=1e-2).solve(
        lambda z: (0.5 * torch.cos(z)).bfloat16(), torch.zeros(2, 3)
    )
    assert solution.z.dtype == torch.float64
    assert solution.converged.all()


@every_solver
def test_only_a_differentiable_solver_records_a_graph(solver: Solver) -> None:
    """What the flag says is what autograd sees, and never in the books."""
    affine = Affine.random()
    solution = solver.solve(affine, affine.zeros)
    assert solution.z.requires_grad == solver.differentiable
    assert not solution.residual.requires_grad
    with torch.no_grad():
        assert not solver.solve(affine, affine.zeros).z.requires_grad
