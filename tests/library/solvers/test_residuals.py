"""What every solver reports: residuals, counts within a budget, the best iterate, traces."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import Counted, Map
from solvers.cases import every_solver, residual_of, tanh_map

from phantomgrad import FixedPoint, Solver

# Residuals ----------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("budget", [1, 2, 7])
def test_the_residual_is_that_of_the_returned_state(
    solver: Solver, stop: str, norm: str, budget: int
) -> None:
    """Recomputed from the undamped map at ``z``, it is what the solver reports."""
    f = tanh_map()
    solver = replace(solver, max_evaluations=budget, tol=1e-9, stop=stop, norm=norm)
    solution = solver.solve(f, torch.randn(4, 5))
    expected = residual_of(solver, f, solution.z)
    torch.testing.assert_close(solution.residual, expected, rtol=1e-10, atol=1e-15)
    assert torch.equal(solution.converged, solution.residual < solver.tol)


@every_solver
def test_damping_does_not_flatter_the_residual(solver: Solver) -> None:
    """At one and the same point every solver reports one and the same number."""
    f, z = tanh_map(), torch.randn(4, 5)
    ours = replace(solver, max_evaluations=1).solve(f, z).residual
    assert torch.equal(ours, FixedPoint(max_evaluations=1).solve(f, z).residual)


@every_solver
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_vanishing_image_does_not_end_the_solve(solver: Solver, dtype: torch.dtype) -> None:
    """``f(z) = 0`` at a finite z is a large residual, not an infinite one, and no divergence."""
    f: Map = lambda z: 0.25 * torch.relu(2 - z)  # noqa: E731
    z0 = torch.full((2, 400), 3.0, dtype=dtype)
    assert replace(solver, max_evaluations=1).solve(f, z0).residual.isfinite().all()
    solution = replace(solver, tol=1e-5).solve(f, z0)
    assert solution.converged.all()
    torch.testing.assert_close(solution.z, torch.full_like(z0, 0.4), rtol=1e-4, atol=0)


@every_solver
def test_an_equilibrium_at_zero_converges(solver: Solver) -> None:
    """0 / 0 is a residual of zero."""
    solution = solver.solve(lambda z: 0.5 * z, torch.zeros(2, 3))
    assert solution.residual.tolist() == [0.0, 0.0]
    assert solution.converged.all()
    assert solution.evaluations.tolist() == [1, 1]


# Budgets and counts -------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("budget", [1, 2, 3, 6, 25])
def test_the_budget_is_spent_and_never_exceeded(solver: Solver, budget: int) -> None:
    """With ``tol=0`` f is called exactly ``max_evaluations`` times, one and two included."""
    f = Counted(tanh_map())
    solution = replace(solver, max_evaluations=budget, tol=0).solve(f, torch.zeros(4, 5))
    assert f.calls == budget
    assert solution.evaluations.tolist() == [budget] * 4


@every_solver
def test_evaluations_are_counted_per_sample(solver: Solver) -> None:
    """The batch calls f as often as its slowest sample needs; each count is that sample's own."""
    f = Counted(tanh_map())
    solution = replace(solver, max_evaluations=100, tol=1e-8).solve(f, torch.zeros(4, 5))
    assert f.calls == solution.evaluations.max()
    for sample, count in enumerate(solution.evaluations.tolist()):
        visited = torch.stack([point[sample] for point in f.points])
        residuals = [residual_of(solver, f.f, point)[sample].item() for point in f.points]
        assert [r < 1e-8 for r in residuals[:count]] == [False] * (count - 1) + [True]
        assert torch.equal(visited[count - 1], solution.z[sample])


@every_solver
def test_iterations_are_evaluations_behind_the_start(solver: Solver) -> None:
    """Without refused points every evaluation but the first one follows a step."""
    solution = replace(solver, tol=1e-6).solve(tanh_map(), torch.zeros(4, 5))
    assert torch.equal(solution.iterations, solution.evaluations - 1)


# The best iterate ---------------------------------------------------------------------------


@every_solver
def test_a_diverging_map_returns_its_best_visited_point(solver: Solver) -> None:
    """Whatever the method does later, the result is the visited point of lowest residual."""
    f = Counted(lambda z: torch.exp(z) + 1)
    solution = replace(solver, max_evaluations=8, tol=0, stop="absolute").solve(
        f, torch.tensor([[0.3], [-2.0]])
    )
    points = torch.stack(f.points)
    residuals = (torch.exp(points) + 1 - points).abs().nan_to_num(torch.inf, torch.inf)
    best = residuals.min(dim=0)
    assert torch.equal(solution.residual, best.values.squeeze(1))
    assert torch.equal(solution.z, points.gather(0, best.indices.unsqueeze(0)).squeeze(0))


def test_the_start_is_a_candidate() -> None:
    """A map that only gets worse returns ``z0``."""
    z0 = torch.tensor([[0.3], [2.0]])
    solver = FixedPoint(max_evaluations=10, tol=0, stop="absolute")
    solution = solver.solve(lambda z: z + z.square() + 1, z0)
    assert torch.equal(solution.z, z0)
    assert not solution.converged.any()


# Traces -------------------------------------------------------------------------------------


@every_solver
def test_the_trace_is_every_residual_until_the_sample_stopped(solver: Solver) -> None:
    """One row per evaluation, nan behind a sample's own last one, its minimum the result."""
    f = Counted(tanh_map())
    solver = replace(solver, tol=1e-6, record_trace=True)
    solution = solver.solve(f, torch.zeros(4, 5))
    trace = solution.trace
    assert trace is not None
    assert trace.shape == (f.calls, 4)
    behind = torch.arange(f.calls).unsqueeze(1) >= solution.evaluations
    assert torch.equal(trace.isnan(), behind)
    expected = torch.stack([residual_of(solver, f.f, point) for point in f.points])
    torch.testing.assert_close(trace[~behind], expected[~behind], rtol=1e-10, atol=1e-15)
    assert torch.equal(trace.nan_to_num(torch.inf).min(dim=0).values, solution.residual)


@every_solver
def test_no_trace_unless_asked_for(solver: Solver) -> None:
    """It costs memory."""
    assert solver.solve(tanh_map(), torch.zeros(4, 5)).trace is None
