"""Jacobian products, spectral radius and Jacobian regularisation."""

import math

import pytest
import torch
from problems import Affine, Counted, TanhCell, dense_jacobian

from phantomgrad import jacobian_regularizer, spectral_radius, spectral_regularizer
from phantomgrad.jacobian import Linearization


def test_products_are_those_of_the_dense_jacobian():
    """``vjp`` is ``J^T u`` and ``jvp`` is ``J u``, any number of times."""
    cell, x, z = TanhCell(), torch.randn(3, 4), torch.randn(3, 2, 2)
    counted = Counted(lambda z: cell(z.flatten(1), x).unflatten(1, (2, 2)))
    at, jacobian = Linearization(counted, z), dense_jacobian(counted.f, z)
    for u in torch.randn(3, 3, 2, 2):
        flat = u.flatten(1).unsqueeze(2)
        torch.testing.assert_close(at.vjp(u).flatten(1), (jacobian.mT @ flat).squeeze(2))
        torch.testing.assert_close(at.jvp(u).flatten(1), (jacobian @ flat).squeeze(2))
    assert counted.calls == 1


def test_the_value_is_on_the_graph_of_the_parameters():
    """This holds under ``no_grad`` too; ``z`` itself stays off the graph."""
    weight, z = torch.ones(3, requires_grad=True), torch.randn(2, 3)
    with torch.no_grad():
        at = Linearization(lambda z: weight * z, z)
    torch.testing.assert_close(torch.autograd.grad(at.value.sum(), weight)[0], z.sum(dim=0))
    assert not z.requires_grad


@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_map_that_ignores_its_argument_has_a_zero_jacobian(needs_grad):
    b, z = torch.ones(2, 3, requires_grad=needs_grad), torch.randn(2, 3)
    at = Linearization(lambda z: 2 * b, z)
    assert torch.equal(at.vjp(z), torch.zeros(2, 3))
    assert torch.equal(at.jvp(z), torch.zeros(2, 3))


def test_a_half_precision_value_gives_products_in_the_dtype_of_the_state():
    z = torch.randn(2, 3)
    at = Linearization(lambda z: (2 * z).bfloat16(), z)
    assert at.value.dtype == torch.bfloat16
    assert at.vjp(z).dtype == torch.float64
    torch.testing.assert_close(at.vjp(torch.ones(2, 3)), torch.full((2, 3), 2.0))


def test_vjps_are_those_of_the_state_and_of_what_f_depends_on():
    f = Affine.random(batch=2, size=3)
    z, v = torch.randn(2, 2, 3)
    at = Linearization(f, z)
    for u in (v, 2 * v):
        into_z, into_bias, into_weight = at.vjps(u, f.bias, f.weight)
        torch.testing.assert_close(into_z, (f.weight.mT @ u.unsqueeze(2)).squeeze(2))
        torch.testing.assert_close(into_bias, u)
        torch.testing.assert_close(into_weight, u.unsqueeze(2) * z.unsqueeze(1))
    assert len(at.vjps(v)) == 1
    torch.testing.assert_close(at.vjps(v)[0], at.vjp(v))


BASIS = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
SYMMETRIC = BASIS @ torch.diag(torch.tensor([-0.9, 0.5, 0.3, 0.1, 0.0]).double()) @ BASIS.mT
RADII = {
    "rotation": (torch.tensor([[0.0, -0.9], [0.9, 0.0]]), 0.9),
    "symmetric": (SYMMETRIC, 0.9),
    "tied eigenvalues of opposite sign": (torch.diag(torch.tensor([0.9, -0.9])), 0.9),
    "norm 10, far from normal": (
        torch.tensor([[0.5, 10.0, 0.0], [0.0, 0.2, 5.0], [0.0, 0.0, -0.1]]),
        0.5,
    ),
    "nilpotent": (torch.tensor([[0.0, 1.0], [0.0, 0.0]]), 0.0),
    "zero": (torch.zeros(2, 2), 0.0),
}


@pytest.mark.parametrize(("matrix", "radius"), RADII.values(), ids=RADII)
def test_spectral_radius_of_a_matrix(matrix, radius):
    matrices = torch.stack([matrix, 0.5 * matrix]).double()
    zeros = torch.zeros(matrices.shape[:2])
    expected = torch.tensor([radius, radius / 2])
    torch.testing.assert_close(
        spectral_radius(Affine(matrices, zeros), zeros), expected, rtol=1e-6, atol=0
    )


def test_a_random_jacobian_agrees_with_its_eigenvalues():
    cell, x, z = TanhCell(size=8), torch.randn(4, 8), torch.randn(4, 8)
    f = lambda z: cell(z, x)  # noqa: E731
    exact = torch.linalg.eigvals(dense_jacobian(f, z)).abs().amax(dim=1)
    radius = spectral_radius(f, z, iterations=2000)
    torch.testing.assert_close(radius, exact, rtol=5e-3, atol=0)
    assert not radius.requires_grad


def test_the_start_comes_from_the_generator():
    f = lambda z: torch.sin(z) * z.mean(dim=(1, 2), keepdim=True)  # noqa: E731
    z = torch.randn(3, 2, 4)
    estimates = [
        spectral_radius(f, z, iterations=3, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(estimates[0], estimates[1])
    assert not torch.equal(estimates[0], estimates[2])


@pytest.fixture
def problem():
    """A cell, its input and a point."""
    return TanhCell(), torch.randn(3, 4), torch.randn(3, 4)


def test_the_expected_penalty_is_the_frobenius_norm(problem):
    """The expected value is ``|J|_F^2 / N``."""
    cell, x, z = problem
    f = lambda z: cell(z, x)  # noqa: E731
    draws = torch.stack([jacobian_regularizer(f, z) for _ in range(200)])
    many = jacobian_regularizer(f, z, samples=800)
    exact, deviation = dense_jacobian(f, z).square().sum().item() / 12, draws.std().item()
    assert draws.mean().item() == pytest.approx(exact, abs=4 * deviation / math.sqrt(200))
    assert many.item() == pytest.approx(exact, abs=4 * deviation / math.sqrt(800))


def test_the_gradient_of_the_penalty_passes_gradcheck():
    weight = TanhCell(size=3).linear.weight

    def penalty(weight, x, z):
        return jacobian_regularizer(
            lambda z: torch.tanh(z @ weight.mT + x),
            z,
            samples=2,
            generator=torch.Generator().manual_seed(0),
        )

    x, z = torch.randn(2, 2, 3).unbind()
    assert torch.autograd.gradcheck(penalty, (weight, x.requires_grad_(), z.requires_grad_()))


def test_a_detached_state_keeps_the_gradient_off_the_equilibrium(problem):
    """The penalty differentiates ``z`` unless it is detached."""
    cell, x, z = problem
    z.requires_grad_()
    through = jacobian_regularizer(lambda z: cell(z, x), z)
    assert torch.autograd.grad(through, z)[0].any()
    detached = jacobian_regularizer(lambda z: cell(z, x), z.detach())
    assert torch.autograd.grad(detached, z, allow_unused=True)[0] is None


@pytest.mark.parametrize("measure", [spectral_radius, jacobian_regularizer, spectral_regularizer])
def test_values_do_not_depend_on_the_autograd_mode(measure, problem):
    cell, x, z = problem
    measured = lambda: measure(  # noqa: E731
        lambda z: cell(z, x), z, generator=torch.Generator().manual_seed(0)
    )
    expected = measured()
    with torch.no_grad():
        assert torch.equal(measured(), expected)
        assert not measured().requires_grad


def test_the_spectral_penalty_of_a_symmetric_map_has_the_gradient_of_its_radius():
    """For J = W with the eigenvector v of the largest modulus, here -0.9, it is -v v^T."""
    basis = torch.linalg.qr(torch.randn(4, 4)).Q
    weight = (basis @ torch.diag(torch.tensor([0.5, -0.9, 0.3, 0.1])) @ basis.mT).requires_grad_()
    penalty = spectral_regularizer(lambda z: z @ weight.mT, torch.randn(3, 4), iterations=60)
    assert penalty.item() == pytest.approx(0.9, rel=1e-10)
    (gradient,) = torch.autograd.grad(penalty, weight)
    torch.testing.assert_close(gradient, -torch.outer(basis[:, 1], basis[:, 1]))


def test_a_penalty_in_half_precision_does_not_overflow():
    z = torch.zeros(16, 4096, dtype=torch.float16)
    found = jacobian_regularizer(lambda z: 300 * z, z)
    assert found.item() == pytest.approx(300**2, rel=0.05)
