"""The phantom gradients against dense matrices, manual unrolling and the exact gradient."""

from __future__ import annotations

import pytest
import torch
from problems import (
    Affine,
    Counted,
    Map,
    TanhCell,
    dense_jacobian,
    newton_equilibrium,
    relative_error,
)
from torch import Tensor

from phantomgrad import GradientEstimator, NeumannPhantomGradient, UnrolledPhantomGradient

PHANTOMS = [UnrolledPhantomGradient, NeumannPhantomGradient]
SETTINGS = [(1, 1.0), (1, 0.5), (2, 0.9), (5, 0.5), (5, 1.0), (9, 0.3)]

both_phantoms = pytest.mark.parametrize("kind", PHANTOMS)
every_setting = pytest.mark.parametrize(("steps", "damping"), SETTINGS)


def tanh_problem(seed: int = 0) -> tuple[Map, Tensor, Tensor, list[Tensor]]:
    """A tanh net, at a point other than its equilibrium."""
    generator = torch.Generator().manual_seed(seed)
    cell, x = TanhCell(), torch.randn(3, 4, generator=generator).requires_grad_()
    z, v = torch.randn(2, 3, 4, generator=generator)
    return lambda z: cell(z, x), z, v, [x, *cell.parameters()]


@every_setting
def test_neumann_uses_the_jacobian_at_the_attached_point(steps: int, damping: float) -> None:
    f, z, v, wanted = tanh_problem()
    b = damping * dense_jacobian(f, z).mT + (1 - damping) * torch.eye(4)
    powers = [torch.linalg.matrix_power(b, t) for t in range(steps)]
    u = damping * torch.stack(powers).sum(dim=0) @ v.unsqueeze(2)
    expected = torch.autograd.grad(f(z), wanted, u.squeeze(2))
    for value, shown in (("equilibrium", z), ("image", f(z))):
        neumann = NeumannPhantomGradient(steps, damping, value)  # type: ignore[arg-type]
        counted = Counted(f)
        attached = neumann.attach(counted, z)
        assert torch.equal(attached, shown)
        ours = torch.autograd.grad(attached, wanted, v)
        assert relative_error(ours, expected) < 1e-12
        assert counted.calls == 1


@every_setting
def test_unrolling_is_autograd_through_the_damped_steps(steps: int, damping: float) -> None:
    f, z, v, wanted = tanh_problem()
    attached = UnrolledPhantomGradient(steps, damping).attach(f, z)
    by_hand = z
    for _ in range(steps):
        by_hand = damping * f(by_hand) + (1 - damping) * by_hand
    torch.testing.assert_close(attached, by_hand, rtol=1e-13, atol=1e-13)
    ours = torch.autograd.grad(attached, wanted, v)
    assert relative_error(ours, torch.autograd.grad(by_hand, wanted, v)) < 1e-13


@every_setting
def test_both_agree_at_a_nonlinear_equilibrium(steps: int, damping: float) -> None:
    f, z, v, wanted = tanh_problem()
    z = newton_equilibrium(f, z)
    unrolled = torch.autograd.grad(UnrolledPhantomGradient(steps, damping).attach(f, z), wanted, v)
    neumann = torch.autograd.grad(NeumannPhantomGradient(steps, damping).attach(f, z), wanted, v)
    assert relative_error(unrolled, neumann) < 1e-12


@both_phantoms
@pytest.mark.parametrize("damping", [0.3, 0.5, 1.0])
def test_both_tend_to_the_exact_gradient(kind: type[GradientEstimator], damping: float) -> None:
    affine, v = Affine.random(norm=0.7), torch.randn(3, 5)
    exact, errors = affine.exact_gradient(v), []
    for steps in (1, 2, 4, 8, 16, 32, 300):
        attached = kind(steps, damping).attach(affine, affine.equilibrium())  # type: ignore[call-arg]
        ours = torch.autograd.grad(attached, (affine.weight, affine.bias), v)
        errors.append(relative_error(ours, exact))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1e-2
    assert errors[-1] < 1e-12


def test_unrolling_has_derivatives_of_both_orders() -> None:
    weight, z = TanhCell(size=3).linear.weight, torch.randn(2, 3)

    def unrolled(x: Tensor, weight: Tensor) -> Tensor:
        return UnrolledPhantomGradient(4, 0.6).attach(lambda z: torch.tanh(z @ weight.mT + x), z)

    x = torch.randn(2, 3, requires_grad=True)
    assert torch.autograd.gradcheck(unrolled, (x, weight))
    assert torch.autograd.gradgradcheck(unrolled, (x, weight))


def test_neumann_refuses_a_second_derivative() -> None:
    affine = Affine.random()
    attached = NeumannPhantomGradient(3, 0.5).attach(affine, affine.equilibrium())
    with pytest.raises(RuntimeError, match=r"UnrolledPhantomGradient, which is the gradient of"):
        torch.autograd.grad(attached.square().sum(), affine.bias, create_graph=True)


@both_phantoms
@pytest.mark.parametrize(
    ("steps", "damping", "message"),
    [
        (0, 0.5, "steps must be at least 1, got 0"),
        (5, 1.5, r"damping must lie in \(0, 1\], got 1.5"),
    ],
)
def test_misuse_names_the_argument(
    kind: type[GradientEstimator], steps: int, damping: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(steps, damping)  # type: ignore[call-arg]


@pytest.mark.parametrize("damping", [0.5, 1.0])
def test_unrolled_steps_keep_the_dtype_of_the_state(damping: float) -> None:
    step = UnrolledPhantomGradient(1, damping).attach(lambda z: (3 * z).bfloat16(), torch.ones(2))
    torch.testing.assert_close(step, torch.full((2,), 1 + 2 * damping))
