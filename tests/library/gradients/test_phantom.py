"""The phantom gradients against dense matrices, manual unrolling and the exact gradient."""

import pytest
import torch
from problems import (
    Affine,
    Counted,
    TanhCell,
    exact_gradient,
    newton_equilibrium,
    relative_error,
)

from phantomgrad import NeumannPhantomGradient, UnrolledPhantomGradient

both_phantoms = pytest.mark.parametrize("kind", [UnrolledPhantomGradient, NeumannPhantomGradient])
every_setting = pytest.mark.parametrize(
    ("steps", "damping"), [(1, 1.0), (1, 0.5), (2, 0.9), (5, 1.0), (9, 0.3)]
)


def tanh_problem():
    """A tanh net, at a point other than its equilibrium."""
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    return lambda z: cell(z, x), *torch.randn(2, 3, 4), [x, *cell.parameters()]


@every_setting
def test_neumann_uses_the_jacobian_at_the_attached_point(steps, damping):
    f, z, v, wanted = tanh_problem()
    expected = exact_gradient(f, z, v, wanted, (steps, damping))
    for value, shown in (("equilibrium", z), ("image", f(z))):
        counted = Counted(f)
        attached = NeumannPhantomGradient(steps, damping, value).attach(counted, z)
        assert torch.equal(attached, shown)
        assert relative_error(torch.autograd.grad(attached, wanted, v), expected) < 1e-12
        assert counted.calls == 1


@every_setting
def test_unrolling_is_autograd_through_the_damped_steps(steps, damping):
    """At an equilibrium, the result is the truncated series."""
    f, z, v, wanted = tanh_problem()
    attached, by_hand = UnrolledPhantomGradient(steps, damping).attach(f, z), z
    for _ in range(steps):
        by_hand = damping * f(by_hand) + (1 - damping) * by_hand
    torch.testing.assert_close(attached, by_hand, rtol=1e-13, atol=1e-13)
    ours = torch.autograd.grad(attached, wanted, v)
    assert relative_error(ours, torch.autograd.grad(by_hand, wanted, v)) < 1e-13
    z = newton_equilibrium(f, z)
    ours = torch.autograd.grad(UnrolledPhantomGradient(steps, damping).attach(f, z), wanted, v)
    assert relative_error(ours, exact_gradient(f, z, v, wanted, (steps, damping))) < 1e-12


@both_phantoms
@pytest.mark.parametrize("damping", [0.3, 0.5, 1.0])
def test_both_tend_to_the_exact_gradient(kind, damping):
    affine, v = Affine.random(norm=0.7), torch.randn(3, 5)
    exact, errors = affine.exact_gradient(v), []
    for steps in (1, 2, 4, 8, 16, 32, 300):
        attached = kind(steps, damping).attach(affine, affine.equilibrium())
        ours = torch.autograd.grad(attached, (affine.weight, affine.bias), v)
        errors.append(relative_error(ours, exact))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1e-2
    assert errors[-1] < 1e-12


def test_unrolling_has_derivatives_of_both_orders():
    weight, z = TanhCell(size=2).linear.weight, torch.randn(2, 2)

    def unrolled(x, weight):
        return UnrolledPhantomGradient(4, 0.6).attach(lambda z: torch.tanh(z @ weight.mT + x), z)

    x = torch.randn(2, 2, requires_grad=True)
    assert torch.autograd.gradcheck(unrolled, (x, weight))
    assert torch.autograd.gradgradcheck(unrolled, (x, weight))


def test_neumann_refuses_a_second_derivative():
    affine = Affine.random()
    attached = NeumannPhantomGradient(3, 0.5).attach(affine, affine.equilibrium())
    with pytest.raises(RuntimeError, match=r"UnrolledPhantomGradient, which is the gradient of"):
        torch.autograd.grad(attached.square().sum(), affine.bias, create_graph=True)


@pytest.mark.parametrize("damping", [0.5, 1.0])
def test_unrolled_steps_keep_the_dtype_of_the_state(damping):
    step = UnrolledPhantomGradient(1, damping).attach(lambda z: (3 * z).bfloat16(), torch.ones(2))
    torch.testing.assert_close(step, torch.full((2,), 1 + 2 * damping))
