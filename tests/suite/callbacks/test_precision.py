"""The instrument of Figure 2 measures dense values, on a step of two layers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from callbacks.steps import Stack, Wild, instrument, last, train_step
from problems import CoupledCell, TanhCell, dense_jacobian, newton_equilibrium
from torch import Tensor, nn

from phantomgrad import FixedPoint, NeumannPhantomGradient, agreement


def dense(stack: Stack, x: Tensor, matrix: Any) -> tuple[list[Tensor], list[Tensor]]:
    """All parameters' gradients with ``u = matrix(J)^T v``, v exact, and all J."""
    points, jacobians = [x], []
    for layer in stack.layers:
        f = partial(call, layer.cell, points[-1])
        points.append(newton_equilibrium(f, torch.zeros_like(x)))
        jacobians.append(dense_jacobian(f, points[-1]))
    v, gradients = 2 * points[-1], []
    for i in (1, 0):
        cell: Any = stack.layers[i].cell
        given, parameters = points[i].clone().requires_grad_(), list(cell.parameters())
        fz, u = cell(points[i + 1], given), times(matrix(jacobians[i]), v)
        gradients = [*torch.autograd.grad(fz, parameters, u, retain_graph=True), *gradients]
        (v,) = torch.autograd.grad(fz, given, times(inverse(jacobians[i]), v))
    return gradients, jacobians


def call(cell: nn.Module, x: Tensor, z: Tensor) -> Tensor:
    return cell(z, x)  # type: ignore[no-any-return]


def times(matrix: Tensor, v: Tensor) -> Tensor:
    return (matrix.mT @ v.unsqueeze(2)).squeeze(2)


def inverse(jacobian: Tensor) -> Tensor:
    return torch.linalg.inv(torch.eye(4) - jacobian)


def neumann(steps: int, damping: float) -> Any:
    def matrix(jacobian: Tensor) -> Tensor:
        b = damping * jacobian + (1 - damping) * torch.eye(4)
        return damping * sum(torch.linalg.matrix_power(b, i) for i in range(steps))  # type: ignore[return-value]

    return matrix


def test_cosine_and_norm_ratio_are_the_dense_ones_over_all_layers(stack: Stack, x: Tensor) -> None:
    callback = instrument()
    train_step(callback, stack, x)
    exact, _ = dense(stack, x, inverse)
    found = last(callback)
    assert (found["exact/cosine"], found["exact/norm_ratio"]) == pytest.approx((1, 1), abs=1e-10)
    for name, matrix in (("npg", neumann(3, 0.8)), ("upg", neumann(5, 0.5))):
        expected = agreement(dense(stack, x, matrix)[0], exact)
        ours = found[f"{name}/cosine"], found[f"{name}/norm_ratio"]
        assert ours == pytest.approx(expected, rel=1e-8)
        assert ours[0] < 0.9999
    assert found["exact/residual"] < 1e-12
    assert found["exact/adjoint_residual"] < 1e-12


def test_radii_are_the_dense_ones(stack: Stack, x: Tensor) -> None:
    callback = instrument(iterations=1500, damping=0.3)
    train_step(callback, stack, x)
    _, jacobians = dense(stack, x, neumann(1, 1.0))
    values = torch.linalg.eigvals(torch.stack(jacobians))
    found = last(callback)
    assert found["spectral_radius/F"] == pytest.approx(values.abs().max().item(), rel=1e-2)
    damped = (0.3 * values + 0.7).abs().max().item()
    assert found["spectral_radius/F_damped"] == pytest.approx(damped, rel=1e-2)


@pytest.mark.parametrize("both", [True, False])
def test_exact_gradient_is_that_of_an_exact_step(x: Tensor, both: bool) -> None:
    """Two layers of two states, of which the loss knows both, or one."""

    class Coupled(Stack):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                (x, rest), _ = layer(x, z0=(torch.zeros(3, 4), torch.zeros(3, 2, 3)))
            return torch.cat([x, rest.flatten(1)], dim=1) if self.both else x

    module, callback = Coupled(CoupledCell(), CoupledCell()), instrument()
    module.both = both
    train_step(callback, module, x)
    found = [g for look in callback.looks for g in look.exact.gradient]
    for ours, parameter in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-9, atol=1e-12)


def test_estimates_are_at_the_equilibrium_of_the_step(x: Tensor) -> None:
    """An estimator that trains badly solved layers agrees with the gradient that the step had."""
    npg = NeumannPhantomGradient(3, 0.8)
    module = Stack(TanhCell(), solver=FixedPoint(max_evaluations=3, tol=0), gradient=npg)
    callback = instrument()
    train_step(callback, module, x)
    (look,) = callback.looks
    for ours, parameter in zip(look.estimates["npg"], module.parameters(), strict=True):
        assert torch.equal(ours, parameter.grad)
    assert last(callback)["exact/residual"] < 1e-12


@pytest.mark.filterwarnings("ignore:.*has no equilibrium in training")
def test_weights_and_masks_are_those_of_the_step(x: Tensor) -> None:
    """Spectral norm and dropout: the exact gradient is the step's own."""
    cell = Wild()
    cell.noise.p = 0
    module, callback = Stack(cell), instrument()
    train_step(callback, module, x)
    (look,) = callback.looks
    for ours, parameter in zip(look.exact.gradient, module.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-9, atol=1e-12)


def test_last_pass_of_a_layer_counts(stack: Stack, x: Tensor) -> None:
    """A layer passed twice is measured once; one that the loss does not know, not at all."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = stack.layers

        def forward(self, x: Tensor) -> Tensor:
            self.idle(x)
            return self.used(self.used(x)[0])[0]  # type: ignore[no-any-return]

    callback = instrument()
    train_step(callback, Twice(), x)
    assert len(callback.looks) == 1
