"""Residuals, budgets, counts, the best iterate, traces, and independence of the samples."""

from dataclasses import replace

import pytest
import torch
from methods import every_norm, every_solver, every_stop, residual_of, tanh_map
from problems import Affine, Counted

from phantomgrad import Anderson, Broyden, FixedPoint, ImplicitGradient, Solution


@every_solver
@every_stop
@every_norm
def test_the_residual_is_that_of_the_returned_state(solver, stop, norm):
    """It is recomputed from the undamped map at ``z``."""
    f = tanh_map()
    solver = replace(solver, max_evaluations=7, tol=1e-9, stop=stop, norm=norm)
    solution = solver.solve(f, torch.randn(4, 5))
    expected = residual_of(solver, f, solution.z)
    torch.testing.assert_close(solution.residual, expected, rtol=1e-10, atol=1e-15)
    assert torch.equal(solution.converged, solution.residual < solver.tol)


@every_solver
@pytest.mark.parametrize("size", [1, 9, 3_072])
def test_the_rms_norm_is_the_same_at_every_size(solver, size):
    """For ``f(z) = z / 2 + 1`` from 0, all entries of f(z) - z and of f(z) are 1."""
    f = lambda z: 0.5 * z + 1  # noqa: E731
    z0, once = torch.zeros(2, size), replace(solver, max_evaluations=1, norm="rms")
    for stop in ("absolute", "relative"):
        residual = replace(once, stop=stop).solve(f, z0).residual
        torch.testing.assert_close(residual, torch.ones(2))
    by_rms = replace(solver, stop="absolute", norm="rms", tol=1e-3).solve(f, z0)
    by_l2 = replace(solver, stop="absolute", tol=1e-3 * size**0.5).solve(f, z0)
    assert torch.equal(by_rms.evaluations, by_l2.evaluations)
    assert torch.equal(by_rms.z, by_l2.z)


@pytest.mark.parametrize("size", [100, 10_000])
def test_default_tolerances_do_not_depend_on_the_size(size):
    f = lambda z: 0.9 * torch.cos(z)  # noqa: E731
    one = FixedPoint().solve(f, torch.zeros(1, 1)).evaluations
    assert torch.equal(FixedPoint().solve(f, torch.zeros(1, size)).evaluations, one)
    defaults = (FixedPoint(), Anderson(), Broyden(), ImplicitGradient().solver)
    assert {solver.stop for solver in defaults} == {"relative"}


@every_solver
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_vanishing_image_does_not_end_the_solve(solver, dtype):
    """``f(z) = 0`` at a finite z has a large but finite relative residual."""
    f = lambda z: 0.25 * torch.relu(2 - z)  # noqa: E731
    z0 = torch.full((2, 400), 3.0, dtype=dtype)
    assert replace(solver, max_evaluations=1).solve(f, z0).residual.isfinite().all()
    solution = replace(solver, tol=1e-5).solve(f, z0)
    assert solution.converged.all()
    torch.testing.assert_close(solution.z, torch.full_like(z0, 0.4), rtol=1e-4, atol=0)


@every_solver
def test_an_equilibrium_at_zero_converges(solver):
    """Its relative residual, ``0 / 0``, is 0."""
    solution = solver.solve(lambda z: 0.5 * z, torch.zeros(2, 3))
    assert solution.residual.tolist() == [0.0, 0.0]
    assert solution.converged.all()
    assert solution.evaluations.tolist() == [1, 1]


@every_solver
@pytest.mark.parametrize("budget", [1, 2, 6])
def test_tol_0_uses_the_whole_budget(solver, budget):
    f = Counted(tanh_map())
    solution = replace(solver, max_evaluations=budget, tol=0).solve(f, torch.zeros(4, 5))
    assert f.calls == budget
    assert solution.evaluations.tolist() == [budget] * 4


@every_solver
def test_evaluations_are_counted_per_sample(solver):
    f = Counted(tanh_map())
    solution = replace(solver, max_evaluations=100, tol=1e-8).solve(f, torch.zeros(4, 5))
    assert f.calls == solution.evaluations.max()
    for sample, count in enumerate(solution.evaluations.tolist()):
        visited = torch.stack([point[sample] for point in f.points])
        residuals = [residual_of(solver, f.f, point)[sample].item() for point in f.points]
        assert [r < 1e-8 for r in residuals[:count]] == [False] * (count - 1) + [True]
        assert torch.equal(visited[count - 1], solution.z[sample])


@every_solver
def test_a_diverging_map_returns_its_best_iterate(solver):
    f = Counted(lambda z: torch.exp(z) + 1)
    solution = replace(solver, max_evaluations=8, tol=0, stop="absolute").solve(
        f, torch.tensor([[0.3], [-2.0]])
    )
    points = torch.stack(f.points)
    residuals = (torch.exp(points) + 1 - points).abs().nan_to_num(torch.inf, torch.inf)
    best = residuals.min(dim=0)
    assert torch.equal(solution.residual, best.values.squeeze(1))
    assert torch.equal(solution.z, points.gather(0, best.indices.unsqueeze(0)).squeeze(0))


@every_solver
def test_the_trace_holds_the_residuals_until_a_sample_stops(solver):
    f, z0 = Counted(tanh_map()), torch.zeros(4, 5)
    assert solver.solve(f.f, z0).trace is None
    solver = replace(solver, tol=1e-6, record_trace=True)
    solution = solver.solve(f, z0)
    trace = solution.trace
    assert trace is not None
    assert trace.shape == (f.calls, 4)
    after = torch.arange(f.calls).unsqueeze(1) >= solution.evaluations
    assert torch.equal(trace.isnan(), after)
    expected = torch.stack([residual_of(solver, f.f, point) for point in f.points])
    torch.testing.assert_close(trace[~after], expected[~after], rtol=1e-10, atol=1e-15)
    assert torch.equal(trace.nan_to_num(torch.inf).min(dim=0).values, solution.residual)


@every_solver
def test_the_composition_of_the_batch_does_not_matter(solver):
    affine = Affine.random(batch=5)
    solver = replace(solver, tol=1e-7, max_evaluations=60)
    order = torch.tensor([3, 1, 4, 0])
    expected = Solution(*(t[order] for t in solver.solve(affine, affine.zeros)[:5]))
    part = Affine(affine.weight[order], affine.bias[order])
    ours = solver.solve(part, part.zeros)
    torch.testing.assert_close(ours.z, expected.z, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.residual, expected.residual, rtol=1e-4, atol=1e-9)
    assert torch.equal(ours.evaluations, expected.evaluations)
    assert torch.equal(ours.converged, expected.converged)


def broken(f, sample, value, first):
    """``f``, but ``value`` for one sample from evaluation number ``first`` on."""
    calls = 0

    def g(z):
        nonlocal calls
        fz = f(z).clone()
        if calls >= first:
            fz[sample] = value
        calls += 1
        return fz

    return g


@every_solver
def test_a_solution_tells_why_each_sample_stopped(solver):
    def f(z):
        overflowing = torch.where(z[2:] > 0, torch.inf, z[2:] + 1)
        return torch.cat([0.1 * z[:1] + 1, 1.5 * z[1:2].abs() + 2, overflowing])

    solution = replace(solver, max_evaluations=20, tol=1e-8).solve(f, torch.zeros(3, 1))
    assert solution.converged.tolist() == [True, False, False]
    assert solution.diverged.tolist() == [False, False, True]
    assert solution.evaluations[1] == 20


@every_solver
@pytest.mark.parametrize(
    ("first", "value", "stop", "norm"),
    [
        (0, torch.nan, "relative", "l2"),
        (3, -torch.inf, "absolute", "rms"),
        (3, torch.nan, "relative", "max"),
    ],
)
def test_a_non_finite_sample_affects_no_other(solver, first, value, stop, norm):
    """It stops, unconverged, with its best finite iterate."""
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
