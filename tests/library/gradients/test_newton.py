"""Exact derivatives of higher order by chord Newton steps."""

from __future__ import annotations

import pytest
import torch
from problems import Map
from torch import Tensor

from phantomgrad import Broyden, ImplicitGradient

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
def test_the_first_derivatives_up_to_the_order_are_exact(order: int) -> None:
    """Those of ``sqrt(theta)``: 1/2 theta^-1/2, -1/4 theta^-3/2, 3/8 theta^-5/2, ..."""
    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    closed = [theta**-0.5 / 2, -(theta**-1.5) / 4, 3 * theta**-2.5 / 8, -15 * theta**-3.5 / 16]
    for ours, expected in zip(derivatives(order, order, theta), closed, strict=False):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_the_next_derivative_is_not_exact() -> None:
    theta = torch.tensor([[0.5, 1.0, 2.0]], requires_grad=True)
    third = derivatives(2, 3, theta)[2]
    assert not torch.allclose(third, 3 * theta**-2.5 / 8, rtol=1e-2)
