"""Exact derivatives of higher order by chord Newton steps."""

from __future__ import annotations

import pytest
import torch
from problems import Map, contraction, newton_equilibrium
from torch import Tensor

from phantomgrad import Broyden, ImplicitGradient, Solution
from phantomgrad.gradients.newton import attach_by_newton

SOLVER = Broyden(max_evaluations=60, tol=1e-14)


def root_map(theta: Tensor) -> Map:
    """``f(z) = z + (theta - z^2) / 4``: the equilibrium is ``sqrt(theta)``."""
    return lambda z: z + (theta - z.square()) / 4


def derivatives(order: int, up_to: int, theta: Tensor) -> list[Tensor]:
    """The first derivatives of the attached equilibrium of ``root_map``."""
    f = root_map(theta)
    z = ImplicitGradient(solver=SOLVER, order=order).attach(f, theta.sqrt().detach())
    found = []
    for _ in range(up_to):
        (z,) = torch.autograd.grad(z.sum(), theta, create_graph=True)
        found.append(z)
    return found


@pytest.mark.parametrize("order", [2, 3, 4])
def test_order_many_derivatives_are_exact(order: int) -> None:
    """Those of ``sqrt(theta)``: 1/2 theta^-1/2, -1/4 theta^-3/2, 3/8 theta^-5/2, ..."""
    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    closed = [
        theta**-0.5 / 2,
        -(theta**-1.5) / 4,
        3 * theta**-2.5 / 8,
        -15 * theta**-3.5 / 16,
    ]
    for ours, expected in zip(derivatives(order, order, theta), closed, strict=False):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_one_derivative_more_than_the_order_is_not_exact() -> None:
    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    third = derivatives(2, 3, theta)[2]
    assert not torch.allclose(third, 3 * theta**-2.5 / 8, rtol=1e-2)


def test_the_value_is_untouched() -> None:
    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    z = torch.tensor([[0.7, 1.0, 1.4]])
    attached = attach_by_newton(root_map(theta), z, 2, lambda op, v: v)
    assert torch.equal(attached, z)


def test_hessian_vector_products_of_a_loss() -> None:
    """The Hessian of ``sum(sqrt(theta)^4) = sum(theta^2)`` is twice the identity."""
    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    z = ImplicitGradient(solver=SOLVER, order=2).attach(root_map(theta), theta.sqrt().detach())
    (first,) = torch.autograd.grad(z.pow(4).sum(), theta, create_graph=True)
    v = torch.tensor([[1.0, -2.0, 3.0]])
    (product,) = torch.autograd.grad(first, theta, v)
    torch.testing.assert_close(first, 2 * theta)
    torch.testing.assert_close(product, 2 * v)


@pytest.mark.parametrize("order", [2, 3])
def test_a_first_derivative_costs_one_adjoint_solve(order: int) -> None:
    weight, solves = contraction(1, 4, 0.5)[0], list[Solution]()
    x = torch.randn(3, 4, requires_grad=True)
    f: Map = lambda z: torch.tanh(z @ weight + x) + 0.2 * torch.sin(z) - 0.1 * z * z  # noqa: E731
    z = newton_equilibrium(f, torch.zeros(3, 4))
    ImplicitGradient(solver=SOLVER, order=order).attach(f, z, solves.append).sum().backward()
    assert len(solves) == 1
    assert solves[0].converged.all()
