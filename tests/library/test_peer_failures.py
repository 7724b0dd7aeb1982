"""Where torchdeq 0.1.0 fails without a word, and that we do not.

Item numbers are those of our list of its rough edges. Not applicable, as we have no such feature:
sampled trajectories (1 converged point lost behind an early stop, 2 taps off by one, 19 repeated
final state, 20 restarts between slices; "early convergence between taps") and the fixed-point
correction loss (9). Not silent, and no result of ours: 15 (``vmap`` over a solve raises here as
there, its stop depends on the data) and 16 (host reads and copies per iteration: a benchmark).
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from problems import (
    Affine,
    Counted,
    Map,
    TanhCell,
    exact_gradient,
    newton_equilibrium,
    relative_error,
)
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from phantomgrad import (
    DEQ,
    Anderson,
    Broyden,
    FixedPoint,
    ImplicitGradient,
    Solver,
    UnrolledPhantomGradient,
    jacobian_regularizer,
)
from phantomgrad.nn import VariationalDropout

EXACT = Broyden(max_evaluations=60, tol=1e-13)
every_solver = pytest.mark.parametrize("solver", [FixedPoint(), Anderson(), Broyden()])


def contraction_at(x: Tensor) -> Map:
    """A tanh net driven by x."""
    cell = TanhCell()
    return lambda z: cell(z, x).detach()


@every_solver
def test_item_3_one_nan_does_not_destroy_the_returned_state(solver: Solver) -> None:
    """3, and 9.11: nan in one evaluation of one sample leaves every best iterate standing."""
    f, calls = contraction_at(torch.randn(3, 4)), 0

    def once_nan(z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        fz = f(z).clone()
        if calls == 4:
            fz[0, 0] = torch.nan
        return fz

    solution = replace(solver, tol=1e-9).solve(once_nan, torch.zeros(3, 4))
    clean = replace(solver, tol=1e-9).solve(f, torch.zeros(3, 4))
    before = replace(solver, max_evaluations=3).solve(f, torch.zeros(3, 4))
    assert torch.equal(solution.z[1:], clean.z[1:])
    assert torch.equal(solution.z[0], before.z[0])
    assert solution.converged.tolist() == [False, True, True]


def test_item_4_two_forwards_before_one_backward() -> None:
    """4, and 9.11: no shared hook, so no recursion; both gradients are exact."""
    cell, x, y = TanhCell(), torch.randn(3, 4), torch.randn(3, 4)
    deq, wanted = DEQ(cell, EXACT, ImplicitGradient(solver=EXACT)), list(cell.parameters())
    ours = torch.autograd.grad(deq(x)[0].sum() + deq(y)[0].sum(), wanted)
    parts = []
    for source in (x, y):
        f: Map = lambda z, source=source: cell(z, source)  # noqa: E731
        z = newton_equilibrium(f, torch.zeros(3, 4))
        parts.append(exact_gradient(f, z, torch.ones(3, 4), wanted))
    expected = tuple(a + b for a, b in zip(*parts, strict=True))
    assert relative_error(ours, expected) < 1e-10


def test_item_4_a_second_backward_is_not_the_one_step_gradient() -> None:
    """4, and 9.11: with ``retain_graph`` the second pass solves the adjoint equation again."""
    deq = DEQ(TanhCell(), EXACT, ImplicitGradient(solver=EXACT))
    x, wanted = torch.randn(3, 4), list(deq.parameters())
    loss = deq(x)[0].sum()
    first = torch.autograd.grad(loss, wanted, retain_graph=True)
    assert relative_error(torch.autograd.grad(loss, wanted), first) == 0
    one_step = DEQ(deq.cell, EXACT, UnrolledPhantomGradient(1, 1.0))
    assert relative_error(torch.autograd.grad(one_step(x)[0].sum(), wanted), first) > 0.1


def test_item_5_second_derivatives_are_exact_or_refused() -> None:
    """5: the Hessian of ``z*`` by ``theta`` in ``z = z + (theta - z^2) / 4`` is known."""

    class Root(nn.Module):
        def forward(self, z: Tensor, theta: Tensor) -> Tensor:
            return z + (theta - z.square()) / 4

    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    start = torch.ones(1, 3)
    z, _ = DEQ(Root(), EXACT, ImplicitGradient(solver=EXACT, order=2))(theta, z0=start)
    (first,) = torch.autograd.grad(z.sum(), theta, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), theta)
    torch.testing.assert_close(second, -(theta.detach() ** -1.5) / 4, rtol=1e-8, atol=0)
    z, _ = DEQ(Root(), EXACT, ImplicitGradient(solver=EXACT))(theta, z0=start)
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        torch.autograd.grad(z.sum(), theta, create_graph=True)


@every_solver
def test_item_6_the_residual_belongs_to_the_returned_state(solver: Solver) -> None:
    """6: not to its argument while the image is returned."""
    f = contraction_at(torch.randn(3, 4))
    solution = replace(solver, max_evaluations=4, tol=0, stop="absolute").solve(
        f, torch.zeros(3, 4)
    )
    recomputed = torch.linalg.vector_norm(f(solution.z) - solution.z, dim=1)
    torch.testing.assert_close(solution.residual, recomputed, rtol=1e-12, atol=0)


@every_solver
@pytest.mark.parametrize("budget", [1, 2, 3, 10])
def test_item_7_budgets_are_comparable(solver: Solver, budget: int) -> None:
    """7: every solver spends ``max_evaluations``, and small ones are not wasted."""
    affine = Counted(Affine.random(norm=0.5))
    start = FixedPoint(max_evaluations=1).solve(affine.f, torch.zeros(3, 5)).residual
    solution = replace(solver, max_evaluations=budget, tol=0).solve(affine, torch.zeros(3, 5))
    assert affine.calls == budget
    assert (solution.iterations + 1 == budget).all()
    assert (solution.residual < start).all() or budget == 1


@every_solver
def test_item_8_tolerance_and_stopping_rule_can_be_changed(solver: Solver) -> None:
    """8: ``dataclasses.replace`` changes any option, and refuses one that does not exist."""
    f = contraction_at(torch.randn(3, 4))
    loose = replace(solver, tol=1e-1).solve(f, torch.zeros(3, 4))
    tight = replace(solver, tol=1e-9, stop="absolute").solve(f, torch.zeros(3, 4))
    assert tight.evaluations.min() > loose.evaluations.max()
    with pytest.raises(TypeError, match="stop_mode"):
        replace(solver, stop_mode="abs")  # type: ignore[call-arg]


@every_solver
def test_item_10_a_configuration_is_never_mutated(solver: Solver) -> None:
    """10: solvers and estimators are frozen, and solving leaves them equal to what they were."""
    before = {field.name: getattr(solver, field.name) for field in fields(solver)}
    DEQ(TanhCell(), solver, ImplicitGradient(solver=solver))(torch.randn(3, 4))[0].sum().backward()
    assert {field.name: getattr(solver, field.name) for field in fields(solver)} == before
    with pytest.raises(FrozenInstanceError):
        solver.tol = 1.0  # type: ignore[misc]


def test_item_11_noise_is_drawn_where_it_is_used() -> None:
    """11: masks and regulariser vectors take dtype and device from the state, not the defaults."""
    low = torch.ones(2, 3, dtype=torch.bfloat16)
    assert VariationalDropout(0.5)(low).dtype == torch.bfloat16
    assert VariationalDropout(0.5)(low.to("meta")).is_meta
    assert jacobian_regularizer(lambda z: 0.5 * z, low).dtype == torch.float32  # of a sum
    assert jacobian_regularizer(lambda z: 0.5 * z, low.to("meta")).is_meta


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_item_12_nothing_has_to_be_reset_between_steps(kind: str) -> None:
    """12: the second step has no stale graph, and the norm is in force at the first."""
    cell = TanhCell(norm=4.0)
    getattr(parametrizations, kind)(cell.linear)
    deq, x = DEQ(cell, EXACT, ImplicitGradient(solver=EXACT)), torch.randn(3, 4)
    for _ in range(3):
        z, _ = deq(x)
        z.sum().backward()
    if kind == "spectral_norm":
        used = cell.eval().linear.weight
        assert torch.linalg.matrix_norm(used, ord=2).item() == pytest.approx(1, abs=1e-2)


def test_item_13_evaluation_mode_is_differentiable() -> None:
    """13: inputs and parameters have gradients with dropout off."""
    deq = DEQ(TanhCell(), EXACT, ImplicitGradient(solver=EXACT)).eval()
    x = torch.randn(3, 4, requires_grad=True)
    deq(x)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.any()
    assert all(p.grad is not None and p.grad.any() for p in deq.parameters())


@every_solver
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_item_14_half_precision_works_and_accumulates_in_float32(
    solver: Solver, dtype: torch.dtype
) -> None:
    """14: also for Anderson, forward and backward, with an error of the size of the rounding."""
    cell = TanhCell().float()
    x = torch.randn(3, 4, dtype=torch.float32)
    half = DEQ(TanhCell().to(dtype), solver, ImplicitGradient(solver=replace(solver, tol=1e-2)))
    z, solution = half(x.to(dtype))
    z.float().square().sum().backward()
    assert solution.residual.dtype == torch.float32
    full = DEQ(cell, replace(solver, tol=1e-5), ImplicitGradient())
    expected, _ = full(x)
    expected.square().sum().backward()
    torch.testing.assert_close(z.float(), expected, rtol=0, atol=0.03)
    ours, reference = half.cell.linear.weight.grad, cell.linear.weight.grad
    assert relative_error((ours.float(),), (reference,)) < 0.1


@every_solver
def test_item_17_a_trace_is_residuals_and_nothing_else(solver: Solver) -> None:
    """17: no sentinel in front, no padding behind but nan, and the first entry is that of z0."""
    f, z0 = contraction_at(torch.linspace(0, 4, 3).unsqueeze(1).expand(3, 4)), torch.zeros(3, 4)
    solution = replace(solver, record_trace=True).solve(f, z0)
    trace = solution.trace
    assert trace is not None
    assert torch.equal(trace[0], replace(solver, max_evaluations=1).solve(f, z0).residual)
    assert torch.equal((~trace.isnan()).sum(dim=0), solution.evaluations)
    assert trace.nan_to_num(0).max() <= 1.0


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_item_18_the_default_tolerance_does_not_depend_on_the_size(size: int) -> None:
    """18: relative forward and backward, so a state tiled ``size`` times takes the same steps."""
    f: Map = lambda z: 0.9 * torch.cos(z)  # noqa: E731
    one = FixedPoint().solve(f, torch.zeros(1, 1)).evaluations
    assert torch.equal(FixedPoint().solve(f, torch.zeros(1, size)).evaluations, one)
    defaults = (FixedPoint(), Anderson(), Broyden(), ImplicitGradient().solver)
    assert {solver.stop for solver in defaults} == {"relative"}


def test_9_9_the_implicit_gradient_is_the_dense_solve_to_1e_10() -> None:
    """9.9: in float64, end to end through the layer."""
    cell, x = TanhCell(size=20), torch.randn(2, 20, requires_grad=True)
    z, _ = DEQ(cell, EXACT, ImplicitGradient(solver=EXACT))(x)
    v, wanted = torch.randn(2, 20), [x, *cell.parameters()]
    ours = torch.autograd.grad(z, wanted, v)
    assert relative_error(ours, exact_gradient(lambda z: cell(z, x), z.detach(), v, wanted)) < 1e-10


def test_9_10_n_broyden_iterations_are_n_plus_one_evaluations() -> None:
    """9.10, and 7: counted as called."""
    f = Counted(contraction_at(torch.randn(1, 4)))
    solution = Broyden(tol=1e-8).solve(f, torch.zeros(1, 4))
    assert f.calls == solution.evaluations.item() == solution.iterations.item() + 1
