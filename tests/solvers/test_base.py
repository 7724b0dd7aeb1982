"""The contract that every solver keeps: residuals, budgets, best iterates, independent samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from phantomgrad import Anderson, Broyden, FixedPoint, Solution, Solver
from problems import Affine, Counted, Map, TanhCell

SOLVERS: dict[str, Solver] = {
    "fixed point": FixedPoint(),
    "damped fixed point": FixedPoint(damping=0.7),
    "anderson": Anderson(),
    "short anderson": Anderson(memory=2, damping=0.8),
    "broyden": Broyden(),
    "short broyden": Broyden(memory=3),
    "searched broyden": Broyden(line_search=True),
}

every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def tanh_map(batch: int = 4, size: int = 5, norm: float = 0.9) -> Map:
    """A contraction; samples of high index sit deeper in the saturation and converge sooner."""
    cell, x = TanhCell(size, norm), torch.linspace(0, 3, batch).unsqueeze(1).repeat(1, size)
    return lambda z: cell(z, x[: len(z)]).detach()


def residual_of(solver: Solver, f: Map, z: Tensor) -> Tensor:
    """The documented residual, computed from scratch."""
    fz = f(z).flatten(1)
    g = fz - z.flatten(1)
    order = {"l2": 2, "max": torch.inf}[solver.norm]
    size = torch.linalg.vector_norm(g, ord=order, dim=1)
    if solver.stop == "relative":
        size = size / torch.linalg.vector_norm(fz, ord=order, dim=1)
    return size


def assert_same_solution(ours: Solution, other: Solution, tolerance: float) -> None:
    """Equal states and residuals to a tolerance, equal counts."""
    torch.testing.assert_close(ours.z, other.z, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours.residual, other.residual, rtol=1e-4, atol=tolerance)
    assert torch.equal(ours.evaluations, other.evaluations)
    assert torch.equal(ours.converged, other.converged)


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


# Samples are independent --------------------------------------------------------------------


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


# Misuse -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FixedPoint, Anderson, Broyden])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_evaluations": 0}, "max_evaluations must be at least 1, got 0"),
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
    with pytest.raises(ValueError, match=r"z0 is on cpu, f\(z0\) on meta"):
        solver.solve(lambda z: z.to("meta"), torch.zeros(2, 3))


@every_solver
def test_f_must_return_one_tensor(solver: Solver) -> None:
    """A tuple is not a state; packing makes one of it."""
    with pytest.raises(TypeError, match="f must return one tensor, got tuple"):
        solver.solve(lambda z: (z, z), torch.zeros(2, 3))  # type: ignore[arg-type, return-value]


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
