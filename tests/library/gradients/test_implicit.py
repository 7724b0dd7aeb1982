"""Implicit differentiation against dense solves, closed forms and finite differences."""

from __future__ import annotations

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

from phantomgrad import Anderson, Broyden, FixedPoint, ImplicitGradient, Solution, Solver

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
    """The adjoint solve evaluates f never; only order 2 has second derivatives."""
    affine = Counted(Affine.random())
    attached = ImplicitGradient(**options).attach(affine, torch.zeros(3, 5))
    attached.sum().backward(retain_graph=True)
    assert affine.calls == evaluations
    if "order" not in options:
        with pytest.raises(RuntimeError, match=r"use ImplicitGradient\(order=2\)"):
            torch.autograd.grad(attached.square().sum(), affine.f.bias, create_graph=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_adjoint_solve_is_reported(order: int) -> None:
    """Whatever the order there is one, and ``report`` receives the adjoint and its counts."""
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
