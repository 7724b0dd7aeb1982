"""Implicit differentiation: dense solves, closed forms, finite differences, failed adjoints."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
    """A tanh net: its map, equilibrium, a cotangent, and its input and parameters."""
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    f: Map = lambda z: cell(z, x)  # noqa: E731
    z = newton_equilibrium(f, torch.zeros(3, 4))
    return f, z, torch.randn(3, 4), [x, *cell.parameters()]


VARIANTS: dict[str, dict[str, Any]] = {
    "order 1": {},
    "order 2": {"order": 2},
    "image": {"at": "image"},
}


@pytest.mark.parametrize("solver", ADJOINT_SOLVERS.values(), ids=ADJOINT_SOLVERS)
@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.parametrize("norm", ["l2", "rms", "max"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_the_gradient_is_the_dense_solve(
    problem: tuple[Map, Tensor, Tensor, list[Tensor]],
    solver: Solver,
    stop: str,
    norm: str,
    options: dict[str, Any],
) -> None:
    """``df/dtheta^T (I - J)^-T v``."""
    f, z, v, wanted = problem
    solver = replace(solver, stop=stop, norm=norm)
    attached = ImplicitGradient(solver=solver, **options).attach(f, z)
    torch.testing.assert_close(attached, z, rtol=0, atol=1e-12 if "at" in options else 0)
    ours = torch.autograd.grad(attached, wanted, v)
    assert relative_error(ours, exact_gradient(f, z, v, wanted)) < 1e-9


def test_gradcheck_of_both_orders() -> None:
    """Finite differences of the solved equilibrium agree with its attached derivatives."""
    solver = Broyden(max_evaluations=60, tol=1e-14)

    def equilibrium(x: Tensor, weight: Tensor) -> Tensor:
        f: Map = lambda z: torch.tanh(z @ weight.mT + x)  # noqa: E731
        z = solver.solve(f, torch.zeros(2, 3)).z
        return ImplicitGradient(solver=solver, order=2).attach(f, z)

    x, weight = torch.randn(2, 3, requires_grad=True), TanhCell(size=3).linear.weight
    assert torch.autograd.gradcheck(equilibrium, (x, weight), atol=1e-7)
    assert torch.autograd.gradgradcheck(equilibrium, (x, weight), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "evaluations"), [*zip(VARIANTS.values(), (1, 3, 2), strict=True)]
)
def test_evaluations_of_f_and_second_derivatives(options: dict[str, Any], evaluations: int) -> None:
    """The adjoint solve never evaluates f; only order 2 has second derivatives."""
    affine = Counted(Affine.random())
    attached = ImplicitGradient(**options).attach(affine, torch.zeros(3, 5))
    attached.sum().backward(retain_graph=True)
    assert affine.calls == evaluations
    if "order" not in options:
        with pytest.raises(RuntimeError, match=r"use ImplicitGradient\(order=2\)"):
            torch.autograd.grad(attached.square().sum(), affine.f.bias, create_graph=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_adjoint_solve_is_reported(order: int) -> None:
    """There is one for every order, and ``report`` receives its solution."""
    affine, v, seen = Affine.random(), torch.randn(3, 5), list[Solution]()
    gradient = ImplicitGradient(solver=Broyden(max_evaluations=40, tol=1e-10), order=order)
    gradient.attach(affine, affine.equilibrium(), seen.append).backward(v)
    (solution,) = seen
    assert solution.converged.all()
    torch.testing.assert_close(solution.z, affine.adjoint(v), rtol=1e-8, atol=1e-8)


def test_a_zero_cotangent_is_not_a_failure() -> None:
    affine, v = Affine.random(), torch.randn(3, 5)
    v[1] = 0
    ImplicitGradient().attach(affine, affine.equilibrium()).backward(v)
    assert affine.bias.grad is not None
    assert not affine.bias.grad[1].any()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_the_loss_does_not_matter(scale: float) -> None:
    affine, v = Affine.random(), torch.randn(3, 5)
    attached = ImplicitGradient(solver=Broyden(max_evaluations=40, tol=1e-12)).attach(
        affine, affine.equilibrium()
    )
    (ours,) = torch.autograd.grad(attached, affine.bias, scale * v)
    torch.testing.assert_close(ours / scale, affine.adjoint(v), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_failure": "explode"}, "on_failure must be 'warn' or 'raise' or .* got 'explode'"),
        ({"failure_residual": 0.0}, "failure_residual must be positive, got 0.0"),
        ({"order": 0}, "order must be at least 1, got 0"),
        ({"at": "start"}, "at must be 'equilibrium' or 'image', got 'start'"),
        ({"at": "image", "order": 2}, "order must be 1 with at='image', got 2"),
    ],
)
def test_misuse_names_the_argument(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImplicitGradient(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "value", "slope"),
    [
        ("equilibrium", lambda z, image: z, lambda z, image: z),
        ("image", *[lambda z, image: image] * 2),
    ],
)
def test_the_jacobian_is_taken_at_the_equilibrium_or_the_image(
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


def test_a_failed_adjoint_warns_once_and_gives_the_one_step_gradient() -> None:
    v = torch.randn(3, 5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")  # shows every text once
        for _ in range(3):
            result = bias_gradient(ImplicitGradient(solver=HOPELESS), v)
    (warning,) = seen
    assert warning.category is AdjointWarning
    assert "failed for some samples: residual above 0.1" in str(warning.message)
    torch.testing.assert_close(result[1], v[1])
    torch.testing.assert_close(result[[0, 2]], v[[0, 2]] / 0.999, rtol=1e-9, atol=1e-9)


def test_a_failed_adjoint_can_raise() -> None:
    message = "failed for 1 of 3 samples: residual .* after 4 evaluations"
    with pytest.raises(AdjointError, match=message):
        bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="raise"), torch.ones(3, 5))


def test_an_ignored_failure_gives_the_one_step_gradient() -> None:
    v = torch.randn(3, 5)
    result = bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="ignore"), v)
    torch.testing.assert_close(result[1], v[1])


def test_a_failed_adjoint_can_be_replaced_by_a_phantom() -> None:
    v, affine = torch.randn(3, 5), expanding()
    result = bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="phantom"), v)
    phantom = NeumannPhantomGradient(5, 0.5).attach(affine, affine.equilibrium())
    (expected,) = torch.autograd.grad(phantom, affine.bias, v)
    torch.testing.assert_close(result[1], expected[1])
    torch.testing.assert_close(result[[0, 2]], v[[0, 2]] / 0.999, rtol=1e-9, atol=1e-9)


def test_a_nan_jacobian_fails_for_its_sample_only() -> None:
    """``sqrt`` at 0 has no derivative: that sample warns and keeps v, the other is exact."""
    x = torch.tensor([[0.0, 0.0], [0.3, 0.5]], requires_grad=True)
    f: Map = lambda z: 0.5 * torch.sqrt(z.square()) + x  # noqa: E731
    z, v = torch.tensor([[0.0, 0.0], [0.6, 1.0]]), torch.ones(2, 2)
    attached = ImplicitGradient().attach(f, z)
    with pytest.warns(AdjointWarning, match="failed for some samples"):
        (result,) = torch.autograd.grad(attached, x, v)
    torch.testing.assert_close(result, torch.tensor([[1.0, 1.0], [2.0, 2.0]]))


@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.parametrize("norm", ["l2", "rms", "max"])
def test_failure_is_judged_by_the_relative_residual(stop: str, norm: str) -> None:
    """An absolute residual of 1e-8 is a failure for a cotangent of that size."""
    v = 1e-8 * torch.ones(3, 5)
    gradient = ImplicitGradient(solver=replace(HOPELESS, stop=stop, norm=norm, tol=1e-7))
    with pytest.warns(AdjointWarning, match="failed for some samples"):
        bias_gradient(gradient, v)


def test_a_slow_adjoint_above_the_threshold_fails() -> None:
    """``failure_residual`` is the threshold."""
    affine, v = Affine.random(norm=0.9), torch.randn(3, 5)
    short = FixedPoint(max_evaluations=3, tol=1e-12)
    attach = lambda threshold: ImplicitGradient(  # noqa: E731
        solver=short, failure_residual=threshold
    ).attach(affine, affine.equilibrium())
    residual = short.solve(lambda u: (affine.weight.mT @ u.unsqueeze(2)).squeeze(2) + v, v).residual
    worst = residual.max().item()
    attach(1.01 * worst).backward(v)
    with pytest.warns(AdjointWarning, match="failed for some samples"):
        attach(0.99 * worst).backward(v)
