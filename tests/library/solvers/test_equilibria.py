"""Equilibria of any shape and precision; damped iteration; refused arguments."""

from dataclasses import replace

import pytest
import torch
from methods import every_solver, tanh_map
from problems import Affine, Counted

from phantomgrad import FixedPoint


@every_solver
def test_equilibrium_of_an_affine_map(solver):
    affine = Affine.random(norm=0.6)
    solver = replace(solver, max_evaluations=200, tol=1e-12)
    solution = solver.solve(affine, affine.zeros)
    assert solution.converged.all()
    torch.testing.assert_close(solution.z.detach(), affine.equilibrium(), rtol=0, atol=1e-10)


@every_solver
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 5), (3, 1, 2, 5), (2, 3, 1, 1, 2)], ids=str)
def test_states_of_every_shape(solver, shape):
    x = torch.linspace(-1, 1, shape[0]).view(-1, *[1] * (len(shape) - 1))
    f = lambda z: 0.5 * torch.cos(z) + x  # noqa: E731
    solution = replace(solver, max_evaluations=100, tol=1e-11).solve(f, torch.zeros(shape))
    assert solution.z.shape == shape
    assert solution.converged.shape == shape[:1]
    assert solution.converged.all()
    torch.testing.assert_close(f(solution.z), solution.z, rtol=0, atol=1e-10)


@every_solver
def test_strided_and_expanded_starts(solver):
    f = tanh_map(batch=4, size=5)
    strided = torch.randn(5, 4).mT
    before = strided.clone()
    ours, copy = solver.solve(f, strided), solver.solve(f, strided.contiguous())
    torch.testing.assert_close(ours.z, copy.z, rtol=1e-13, atol=1e-13)
    assert torch.equal(strided, before)
    expanded = solver.solve(f, torch.zeros(1, 1).expand(4, 5))
    torch.testing.assert_close(expanded.z, solver.solve(f, torch.zeros(4, 5)).z)


@every_solver
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_states_have_residuals_in_float32(solver, dtype):
    f = Counted(lambda z: 0.5 * torch.cos(z))
    solution = replace(solver, tol=1e-2).solve(f, torch.zeros(2, 9, dtype=dtype))
    assert {point.dtype for point in f.points} == {dtype}
    assert solution.z.dtype == dtype
    assert solution.residual.dtype == torch.float32
    assert solution.converged.all()
    equilibrium = torch.full((2, 9), 0.450183611294874)
    torch.testing.assert_close(solution.z.double(), equilibrium, rtol=0, atol=1e-2)


def test_half_precision_iterates_are_not_rounded_between_evaluations():
    """A step below the resolution of bfloat16 still adds up in the float32 state."""
    slow = FixedPoint(damping=0.002, max_evaluations=2000, tol=0.1)
    solution = slow.solve(torch.ones_like, torch.full((1, 1), 0.5, dtype=torch.bfloat16))
    assert solution.converged.all()


@every_solver
def test_the_dtype_of_f_may_differ(solver):
    """Under autocast it does."""
    solution = replace(solver, tol=1e-2).solve(
        lambda z: (0.5 * torch.cos(z)).bfloat16(), torch.zeros(2, 3)
    )
    assert solution.z.dtype == torch.float64
    assert solution.converged.all()


@every_solver
def test_only_a_differentiable_solver_records_a_graph(solver):
    affine = Affine.random()
    solution = solver.solve(affine, affine.zeros)
    assert solution.z.requires_grad == solver.differentiable
    assert not solution.residual.requires_grad
    with torch.no_grad():
        assert not solver.solve(affine, affine.zeros).z.requires_grad


@every_solver
def test_f_may_modify_its_own_tensors_in_inference_mode(solver):
    z0 = torch.zeros(2, 3)
    expected = solver.solve(lambda z: z.cos().mul_(0.5), z0)
    with torch.inference_mode():
        found = solver.solve(lambda z: z.cos().mul_(0.5), z0.clone())
    assert torch.equal(found.z, expected.z)


@every_solver
@pytest.mark.parametrize("start", [torch.zeros_like, lambda x: torch.zeros(x.shape)])
def test_images_in_a_vmap(solver, start):
    """The start is of the batch of the vmap, or made inside of it."""
    x = torch.randn(2, 1, 3, 4, 4)
    exact = replace(solver, max_evaluations=60, tol=1e-12)
    z = torch.vmap(lambda x: exact.solve(lambda z: 0.3 * z + x, start(x)).z)(x)
    torch.testing.assert_close(z, x / 0.7)


@every_solver
def test_reading_numbers_in_python_changes_nothing(solver):
    """Of up to 64 samples, and of more: the same comparisons, with nan and infinity too."""
    weight = torch.linspace(0.2, 1.4, 3 * 72).view(72, 3)  # some diverge
    z0 = torch.ones(72, 3)
    z0[3], z0[70] = torch.nan, torch.inf

    def solved(part):
        w = weight[part]
        return solver.solve(lambda z: torch.cos(w * z) + w * z**2, z0[part])[:5]

    halves = map(torch.cat, zip(solved(slice(36)), solved(slice(36, None)), strict=True))
    expected = [*solved(slice(None))]
    torch.testing.assert_close([*halves], expected, rtol=0, atol=0, equal_nan=True)


@every_solver
def test_a_map_may_be_a_gradient_that_autograd_takes(solver):
    """It marks its argument, as an energy-based cell does; the solver's tensors stay unmarked."""

    def f(z):
        with torch.enable_grad():
            energy = torch.cos(z.requires_grad_()).sum() / 2
            return torch.autograd.grad(energy, z)[0] + 1

    z0 = torch.zeros(2, 3)
    with torch.no_grad():
        assert not solver.solve(f, z0).z.requires_grad
    assert not z0.requires_grad
