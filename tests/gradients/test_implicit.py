"""Implicit differentiation: exact by any adjoint solver, never silently wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from phantomgrad import (
    AdjointError,
    AdjointWarning,
    Anderson,
    Broyden,
    FixedPoint,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solution,
    Solver,
    UnrolledPhantomGradient,
)
from problems import (
    Affine,
    Counted,
    Map,
    TanhCell,
    dense_jacobian,
    exact_gradient,
    newton_equilibrium,
    relative_error,
)

ADJOINT_SOLVERS: dict[str, Solver] = {
    "fixed point": FixedPoint(max_evaluations=400, tol=1e-12),
    "damped fixed point": FixedPoint(max_evaluations=400, tol=1e-12, damping=0.8),
    "anderson": Anderson(max_evaluations=100, tol=1e-12),
    "broyden": Broyden(max_evaluations=60, tol=1e-12),
    "short broyden": Broyden(max_evaluations=200, tol=1e-12, memory=4),
    "searched broyden": Broyden(max_evaluations=60, tol=1e-12, line_search=True),
}


@pytest.fixture
def problem() -> tuple[Map, Tensor, Tensor, list[Tensor]]:
    """A tanh net: its map, equilibrium, a cotangent, and what it is differentiated by."""
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    f: Map = lambda z: cell(z, x)  # noqa: E731
    z = newton_equilibrium(f, torch.zeros(3, 4))
    return f, z, torch.randn(3, 4), [x, *cell.parameters()]


@pytest.mark.parametrize("solver", ADJOINT_SOLVERS.values(), ids=ADJOINT_SOLVERS)
@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("order", [1, 2])
def test_the_gradient_is_the_dense_solve(
    problem: tuple[Map, Tensor, Tensor, list[Tensor]],
    solver: Solver,
    stop: str,
    norm: str,
    order: int,
) -> None:
    """``df/dtheta^T (I - J)^-T v`` to 1e-9, whatever solves the adjoint equation."""
    f, z, v, wanted = problem
    solver = replace(solver, stop=stop, norm=norm)
    attached = ImplicitGradient(solver=solver, order=order).attach(f, z)
    assert torch.equal(attached, z)
    ours = torch.autograd.grad(attached, wanted, v)
    assert relative_error(ours, exact_gradient(f, z, v, wanted)) < 1e-9


@pytest.mark.parametrize("solver", ADJOINT_SOLVERS.values(), ids=ADJOINT_SOLVERS)
def test_the_gradient_of_an_affine_map_is_the_closed_form(solver: Solver) -> None:
    """``(I - W^T)^-1 v z*^T`` and ``(I - W^T)^-1 v``, one W per sample."""
    affine, v = Affine.random(), torch.randn(3, 5)
    attached = ImplicitGradient(solver=solver).attach(affine, affine.equilibrium())
    ours = torch.autograd.grad(attached, (affine.weight, affine.bias), v)
    assert relative_error(ours, affine.exact_gradient(v)) < 1e-9


def test_gradcheck_of_the_equilibrium() -> None:
    """Finite differences of the solved equilibrium agree with the attached gradient."""
    cell, solver = TanhCell(size=3), Broyden(max_evaluations=60, tol=1e-14)

    def equilibrium(x: Tensor, weight: Tensor) -> Tensor:
        f: Map = lambda z: torch.tanh(z @ weight.mT + x)  # noqa: E731
        z = solver.solve(f, torch.zeros(2, 3)).z
        return ImplicitGradient(solver=solver).attach(f, z)

    x, weight = torch.randn(2, 3, requires_grad=True), cell.linear.weight
    assert torch.autograd.gradcheck(equilibrium, (x, weight), atol=1e-7)


def test_gradgradcheck_of_order_two() -> None:
    """Second derivatives of the equilibrium are exact as well."""
    solver = Broyden(max_evaluations=60, tol=1e-14)

    def equilibrium(x: Tensor, weight: Tensor) -> Tensor:
        f: Map = lambda z: torch.tanh(z @ weight.mT + x)  # noqa: E731
        z = solver.solve(f, torch.zeros(2, 3)).z
        return ImplicitGradient(solver=solver, order=2).attach(f, z)

    x, weight = torch.randn(2, 3, requires_grad=True), TanhCell(size=3).linear.weight
    assert torch.autograd.gradcheck(equilibrium, (x, weight), atol=1e-7)
    assert torch.autograd.gradgradcheck(equilibrium, (x, weight), atol=1e-6)


def test_order_one_refuses_a_second_derivative() -> None:
    """The error says what to use instead."""
    affine = Affine.random()
    attached = ImplicitGradient().attach(affine, affine.equilibrium())
    with pytest.raises(RuntimeError, match=r"use ImplicitGradient\(order=2\)"):
        torch.autograd.grad(attached.square().sum(), affine.bias, create_graph=True)


def test_one_evaluation_of_f_serves_the_whole_backward_pass() -> None:
    """Order 1 evaluates f once, order 2 three times; the adjoint solve never."""
    affine, calls = Affine.random(), 0

    def counted(z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return affine(z)

    spent = []
    for order in (1, 2):
        calls = 0
        ImplicitGradient(order=order).attach(counted, affine.equilibrium()).sum().backward()
        spent.append(calls)
    assert spent == [1, 3]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_adjoint_solve_is_reported(order: int) -> None:
    """Whatever the order there is one, and ``report`` receives the adjoint and its counts."""
    affine, v, seen = Affine.random(), torch.randn(3, 5), list[Solution]()
    gradient = ImplicitGradient(solver=Broyden(max_evaluations=40, tol=1e-10), order=order)
    gradient.attach(affine, affine.equilibrium(), seen.append).backward(v)
    (solution,) = seen
    assert solution.converged.all()
    torch.testing.assert_close(solution.z, affine.adjoint(v), rtol=1e-8, atol=1e-8)


def test_a_zero_cotangent_is_no_failure() -> None:
    """A sample that the loss ignores has a zero gradient, without a warning."""
    affine, v = Affine.random(), torch.randn(3, 5)
    v[1] = 0
    ImplicitGradient().attach(affine, affine.equilibrium()).backward(v)
    assert affine.bias.grad is not None
    assert not affine.bias.grad[1].any()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_the_loss_does_not_matter(scale: float) -> None:
    """The adjoint equation is linear and its stopping rule relative."""
    affine, v = Affine.random(), torch.randn(3, 5)
    attached = ImplicitGradient(solver=Broyden(max_evaluations=40, tol=1e-12)).attach(
        affine, affine.equilibrium()
    )
    (ours,) = torch.autograd.grad(attached, affine.bias, scale * v)
    torch.testing.assert_close(ours / scale, affine.adjoint(v), rtol=1e-9, atol=1e-9)


# Where the Jacobian is taken ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "value", "slope"),
    [
        ("equilibrium", lambda z, image: z, lambda z, image: z),
        ("image", *[lambda z, image: image] * 2),
    ],
)
def test_an_inexact_equilibrium_tells_where_the_jacobian_is_taken(
    at: str, value: Callable[..., Tensor], slope: Callable[..., Tensor]
) -> None:
    """``f(z) = a z^2 + b`` away from its fixed point: ``v / (1 - 2 a z)``, df/da at z0 always."""
    a = torch.tensor([[0.3], [0.2]], requires_grad=True)
    b = torch.tensor([[0.1], [0.4]], requires_grad=True)
    f: Map = lambda z: a * z.square() + b  # noqa: E731
    z0, v = torch.tensor([[0.7], [-0.6]]), torch.tensor([[1.5], [-2.0]])
    solver = Broyden(max_evaluations=9, tol=1e-14)
    attached = ImplicitGradient(solver=solver, at=at).attach(f, z0)  # type: ignore[arg-type]
    image = f(z0).detach()
    torch.testing.assert_close(attached, value(z0, image))
    u = v / (1 - 2 * a.detach() * slope(z0, image))
    by_a, by_b = torch.autograd.grad(attached, (a, b), v)
    torch.testing.assert_close((by_a, by_b), (z0.square() * u, u), rtol=1e-12, atol=0)


@pytest.mark.parametrize("solver", ADJOINT_SOLVERS.values(), ids=ADJOINT_SOLVERS)
def test_at_an_exact_equilibrium_the_image_changes_nothing(
    problem: tuple[Map, Tensor, Tensor, list[Tensor]], solver: Solver
) -> None:
    """Value and gradient are those of the dense solve."""
    f, z, v, wanted = problem
    attached = ImplicitGradient(solver=solver, at="image").attach(f, z)
    torch.testing.assert_close(attached, z, rtol=0, atol=1e-12)
    ours = torch.autograd.grad(attached, wanted, v)
    assert relative_error(ours, exact_gradient(f, z, v, wanted)) < 1e-9


def test_the_image_costs_two_evaluations_and_no_second_derivative() -> None:
    affine = Counted(Affine.random())
    attached = ImplicitGradient(at="image").attach(affine, torch.zeros(3, 5))
    attached.sum().backward(retain_graph=True)
    assert affine.calls == 2
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        torch.autograd.grad(attached.square().sum(), affine.f.bias, create_graph=True)  # type: ignore[attr-defined]


# Failures -----------------------------------------------------------------------------------

HOPELESS = FixedPoint(max_evaluations=4, tol=1e-12, stop="absolute")


def expanding() -> Affine:
    """Sample 1 has a Jacobian of radius 3, on which a fixed-point adjoint diverges."""
    affine = Affine.random()
    weight = affine.weight.detach().clone()
    weight[1] = 3 * torch.eye(5)
    weight[[0, 2]] = 0.001 * torch.eye(5)
    return Affine(weight.requires_grad_(), affine.bias)


def bias_gradient(gradient: ImplicitGradient, v: Tensor) -> Tensor:
    """Return the gradient of ``<v, z*>`` by the bias of the half-expanding map."""
    affine = expanding()
    attached = gradient.attach(affine, affine.equilibrium())
    (result,) = torch.autograd.grad(attached, affine.bias, v)
    return result


def test_a_failed_adjoint_warns_with_its_residual() -> None:
    """By default; and the gradient of that sample is the one-step gradient, not zero."""
    v = torch.randn(3, 5)
    with pytest.warns(AdjointWarning, match="failed for 1 of 3 samples: residual .* after 4 eval"):
        result = bias_gradient(ImplicitGradient(solver=HOPELESS), v)
    torch.testing.assert_close(result[1], v[1])
    torch.testing.assert_close(result[[0, 2]], v[[0, 2]] / 0.999, rtol=1e-9, atol=1e-9)


def test_a_failed_adjoint_can_raise() -> None:
    """The error passes through the autograd engine with its type and message."""
    with pytest.raises(AdjointError, match="failed for 1 of 3 samples"):
        bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="raise"), torch.ones(3, 5))


def test_a_failed_adjoint_can_be_replaced_by_a_phantom() -> None:
    """NPG with k = 5, lambda = 0.5 for that sample; the others keep the exact gradient."""
    v, affine = torch.randn(3, 5), expanding()
    result = bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="phantom"), v)
    phantom = NeumannPhantomGradient(5, 0.5).attach(affine, affine.equilibrium())
    (expected,) = torch.autograd.grad(phantom, affine.bias, v)
    torch.testing.assert_close(result[1], expected[1])
    torch.testing.assert_close(result[[0, 2]], v[[0, 2]] / 0.999, rtol=1e-9, atol=1e-9)


def test_a_failed_adjoint_can_be_ignored() -> None:
    """No warning; the best iterate is used."""
    v = torch.randn(3, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="ignore"), v)
    torch.testing.assert_close(result[1], v[1])


@pytest.mark.parametrize("on_failure", ["warn", "ignore", "phantom"])
@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_a_failure_is_never_a_zero_gradient(on_failure: str, stop: str) -> None:
    """Every sample with a cotangent has a finite gradient that is not zero."""
    solver = replace(HOPELESS, stop=stop)
    gradient = ImplicitGradient(solver=solver, on_failure=on_failure)  # type: ignore[arg-type]
    result = bias_gradient(gradient, torch.randn(3, 5))
    assert result.isfinite().all()
    assert (result.abs().amax(dim=1) > 0.1).all()


def test_a_nan_jacobian_fails_aloud_and_alone() -> None:
    """``sqrt`` at 0 has no derivative: that sample warns and keeps v, the other is exact."""
    x = torch.tensor([[0.0, 0.0], [0.3, 0.5]], requires_grad=True)
    f: Map = lambda z: 0.5 * torch.sqrt(z.square()) + x  # noqa: E731
    z, v = torch.tensor([[0.0, 0.0], [0.6, 1.0]]), torch.ones(2, 2)
    attached = ImplicitGradient().attach(f, z)
    with pytest.warns(AdjointWarning, match="failed for 1 of 2 samples"):
        (result,) = torch.autograd.grad(attached, x, v)
    torch.testing.assert_close(result, torch.tensor([[1.0, 1.0], [2.0, 2.0]]))


@pytest.mark.parametrize("stop", ["relative", "absolute"])
def test_failure_is_judged_by_the_relative_residual(stop: str) -> None:
    """An absolute residual of 1e-8 is a failure where the cotangent has the size 1e-8."""
    v = 1e-8 * torch.ones(3, 5)
    gradient = ImplicitGradient(solver=replace(HOPELESS, stop=stop, tol=1e-7))
    with pytest.warns(AdjointWarning, match="failed for 1 of 3"):
        bias_gradient(gradient, v)


def test_a_slow_adjoint_above_the_threshold_fails() -> None:
    """``failure_residual`` is where the line is drawn."""
    affine, v = Affine.random(norm=0.9), torch.randn(3, 5)
    short = FixedPoint(max_evaluations=3, tol=1e-12)
    attach = lambda threshold: ImplicitGradient(  # noqa: E731
        solver=short, failure_residual=threshold
    ).attach(affine, affine.equilibrium())
    residual = short.solve(lambda u: (affine.weight.mT @ u.unsqueeze(2)).squeeze(2) + v, v).residual
    worst = residual.max().item()
    attach(1.01 * worst).backward(v)
    with pytest.warns(AdjointWarning, match="failed for 1 of 3"):
        attach(0.99 * worst).backward(v)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_failure": "explode"}, "on_failure must be 'warn', 'raise', .* got 'explode'"),
        ({"failure_residual": 0.0}, "failure_residual must be positive, got 0.0"),
        ({"order": 0}, "order must be at least 1, got 0"),
        ({"at": "start"}, "at must be 'equilibrium' or 'image', got 'start'"),
        ({"at": "image", "order": 2}, "order must be 1 where at is 'image', got 2"),
    ],
)
def test_misuse_names_the_argument(options: dict[str, object], message: str) -> None:
    """A refused option is named with its rule and its value."""
    with pytest.raises(ValueError, match=message):
        ImplicitGradient(**options)  # type: ignore[arg-type]


def test_phantoms_and_the_exact_gradient_rank_as_published() -> None:
    """Cosine to the exact gradient: (k, lambda) = (1, 1) < (5, 0.5) < (5, 0.8) < implicit."""
    cell, x, v = TanhCell(size=20), torch.randn(4, 20, requires_grad=True), torch.randn(4, 20)
    f: Map = lambda z: cell(z, x)  # noqa: E731
    z = newton_equilibrium(f, torch.zeros(4, 20))
    (exact,) = exact_gradient(f, z, v, [x])
    estimators = (
        UnrolledPhantomGradient(1, 1.0),
        UnrolledPhantomGradient(5, 0.5),
        UnrolledPhantomGradient(5, 0.8),
        ImplicitGradient(),
    )
    gradients = (torch.autograd.grad(e.attach(f, z), x, v)[0].flatten() for e in estimators)
    cosines = [torch.cosine_similarity(g, exact.flatten(), dim=0).item() for g in gradients]
    assert cosines == sorted(cosines)
    assert 0.8 < cosines[0] < 0.999
    assert cosines[-1] > 1 - 1e-9
    assert dense_jacobian(f, z).shape == (4, 20, 20)
