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
    exact_gradient,
    newton_equilibrium,
    relative_error,
)
from torch import Tensor

from phantomgrad import (
    AdaptiveDamping,
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.gradients.phantom import damped_steps

PHANTOMS = [UnrolledPhantomGradient, NeumannPhantomGradient]
SETTINGS = [(1, 1.0), (1, 0.5), (2, 0.9), (5, 0.5), (5, 1.0), (9, 0.3)]

both_phantoms = pytest.mark.parametrize("kind", PHANTOMS)
every_setting = pytest.mark.parametrize(("steps", "damping"), SETTINGS)


def affine_gradient(estimator: GradientEstimator, affine: Affine, v: Tensor) -> tuple[Tensor, ...]:
    """The gradients of ``<v, z*>`` by weight and bias at the exact equilibrium."""
    attached = estimator.attach(affine, affine.equilibrium())
    return torch.autograd.grad(attached, (affine.weight, affine.bias), v)


def tanh_problem(seed: int = 0) -> tuple[Map, Tensor, Tensor, list[Tensor]]:
    """A tanh net at a point that is no equilibrium."""
    generator = torch.Generator().manual_seed(seed)
    cell, x = TanhCell(), torch.randn(3, 4, generator=generator).requires_grad_()
    z, v = torch.randn(2, 3, 4, generator=generator)
    return lambda z: cell(z, x), z, v, [x, *cell.parameters()]


@every_setting
def test_neumann_is_the_truncated_series_of_dense_matrices(steps: int, damping: float) -> None:
    """``A = lambda dF/dtheta (I + B + ... + B^(k-1))``, every factor a matrix (Eq. A-neumann)."""
    affine, v = Affine.random(batch=1), torch.randn(1, 5)
    z = affine.equilibrium()
    by_weight = torch.autograd.functional.jacobian(
        lambda w: Affine(w, affine.bias)(z), affine.weight
    )
    by_theta = by_weight.reshape(5, 25).mT  # (P, D): the paper's layout, column = output
    b = damping * affine.weight[0].mT + (1 - damping) * torch.eye(5)
    series = sum((torch.linalg.matrix_power(b, t) for t in range(steps)), torch.zeros(5, 5))
    expected = damping * by_theta @ series @ v[0]
    ours, _ = affine_gradient(NeumannPhantomGradient(steps, damping), affine, v)
    torch.testing.assert_close(ours.flatten(), expected, rtol=1e-12, atol=1e-12)


@every_setting
def test_neumann_takes_the_jacobian_where_it_is_attached(steps: int, damping: float) -> None:
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


def test_neumann_shows_the_one_or_the_other() -> None:
    with pytest.raises(ValueError, match="value must be 'equilibrium' or 'image', got 'both'"):
        NeumannPhantomGradient(3, 0.5, "both")  # type: ignore[arg-type]


def test_one_step_that_shows_the_image_is_the_one_step_gradient() -> None:
    f, z, v, wanted = tanh_problem()
    one = UnrolledPhantomGradient(1, 1.0).attach(f, z)
    ours = NeumannPhantomGradient(1, 1.0, "image").attach(f, z)
    assert torch.equal(ours, one)
    expected = torch.autograd.grad(one, wanted, v)
    assert relative_error(torch.autograd.grad(ours, wanted, v), expected) == 0


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
def test_the_two_agree_at_an_exact_equilibrium(steps: int, damping: float) -> None:
    affine, v = Affine.random(), torch.randn(3, 5)
    unrolled = affine_gradient(UnrolledPhantomGradient(steps, damping), affine, v)
    neumann = affine_gradient(NeumannPhantomGradient(steps, damping), affine, v)
    assert relative_error(unrolled, neumann) < 1e-12


@every_setting
def test_the_two_agree_at_a_nonlinear_equilibrium(steps: int, damping: float) -> None:
    f, z, v, wanted = tanh_problem()
    z = newton_equilibrium(f, z)
    unrolled = torch.autograd.grad(UnrolledPhantomGradient(steps, damping).attach(f, z), wanted, v)
    neumann = torch.autograd.grad(NeumannPhantomGradient(steps, damping).attach(f, z), wanted, v)
    assert relative_error(unrolled, neumann) < 1e-12


@both_phantoms
@pytest.mark.parametrize("damping", [0.3, 0.5, 1.0])
def test_both_tend_to_the_exact_gradient(kind: type[GradientEstimator], damping: float) -> None:
    affine, v = Affine.random(norm=0.7), torch.randn(3, 5)
    exact = affine.exact_gradient(v)
    errors = [
        relative_error(affine_gradient(kind(steps, damping), affine, v), exact)  # type: ignore[call-arg]
        for steps in (1, 2, 4, 8, 16, 32, 300)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1e-2
    assert errors[-1] < 1e-12


@both_phantoms
def test_the_error_decays_at_the_rate_of_the_damped_jacobian(
    kind: type[GradientEstimator],
) -> None:
    """On ``f(z) = 0.6 z + b`` the error after k steps is ``(0.6 lambda + 1 - lambda)^k``."""
    affine, v = Affine(0.6 * torch.eye(2).expand(3, 2, 2), torch.ones(3, 2)), torch.ones(3, 2)
    affine = Affine(affine.weight, affine.bias.requires_grad_())
    for steps in (1, 3, 7):
        attached = kind(steps, 0.5).attach(affine, affine.equilibrium())  # type: ignore[call-arg]
        (ours,) = torch.autograd.grad(attached, affine.bias, v)
        torch.testing.assert_close(ours, (1 - 0.8**steps) * affine.adjoint(v))


@both_phantoms
def test_one_undamped_step_is_the_one_step_gradient(kind: type[GradientEstimator]) -> None:
    """(k, lambda) = (1, 1) leaves the inverse out: ``dF/dtheta v``."""
    f, z, v, wanted = tanh_problem()
    ours = torch.autograd.grad(kind(1, 1.0).attach(f, z), wanted, v)  # type: ignore[call-arg]
    assert relative_error(ours, torch.autograd.grad(f(z), wanted, v)) < 1e-14


def test_gradcheck_of_unrolling_at_convergence() -> None:
    weight = TanhCell(size=3).linear.weight
    z = torch.randn(2, 3)

    def unrolled(x: Tensor, weight: Tensor) -> Tensor:
        f: Map = lambda z: torch.tanh(z @ weight.mT + x)  # noqa: E731
        return UnrolledPhantomGradient(4, 0.6).attach(f, z)

    x = torch.randn(2, 3, requires_grad=True)
    assert torch.autograd.gradcheck(unrolled, (x, weight))
    assert torch.autograd.gradgradcheck(unrolled, (x, weight))


def test_many_unrolled_steps_pass_gradcheck_as_the_equilibrium_itself() -> None:
    cell, x = TanhCell(norm=0.8), torch.randn(2, 4, requires_grad=True)
    f: Map = lambda z: cell(z, x)  # noqa: E731
    z, v, wanted = newton_equilibrium(f, torch.zeros(2, 4)), torch.randn(2, 4), [x]
    attached = UnrolledPhantomGradient(200, 1.0).attach(f, z)
    torch.testing.assert_close(attached, z, rtol=0, atol=1e-14)
    ours = torch.autograd.grad(attached, wanted, v)
    assert relative_error(ours, exact_gradient(f, z, v, wanted)) < 1e-12


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
        (5, 0.0, r"damping must lie in \(0, 1\], got 0.0"),
        (5, 1.5, r"damping must lie in \(0, 1\], got 1.5"),
    ],
)
def test_misuse_names_the_argument(
    kind: type[GradientEstimator], steps: int, damping: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(steps, damping)  # type: ignore[call-arg]


# The steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.3, 1.0])
def test_damped_steps_of_a_linear_map_have_a_closed_form(damping: float) -> None:
    """``h_k - h* = B^k (h_0 - h*)`` with ``B = lambda W + (1 - lambda) I``, for every k."""
    affine, start = Affine.random(), torch.randn(3, 5)
    steps = torch.stack(list(damped_steps(affine, start, 4, damping)))
    b = damping * affine.weight + (1 - damping) * torch.eye(5)
    away = (start - affine.equilibrium()).unsqueeze(2)
    expected = [
        affine.equilibrium() + (torch.linalg.matrix_power(b, k) @ away).squeeze(2)
        for k in (1, 2, 3, 4)
    ]
    torch.testing.assert_close(steps, torch.stack(expected))


def test_damped_steps_are_taken_when_asked_for() -> None:
    f = Counted(Affine.random())
    steps = damped_steps(f, torch.zeros(3, 5), 3, 0.5)
    assert f.calls == 0
    first = next(steps)
    assert f.calls == 1
    assert len(list(steps)) == 2
    torch.testing.assert_close(first, next(damped_steps(f, torch.zeros(3, 5), 1, 0.5)))


def test_damped_steps_keep_the_dtype_of_the_state() -> None:
    z = torch.ones(2, 3)
    for damping in (0.5, 1.0):
        (step,) = damped_steps(lambda z: (3 * z).bfloat16(), z, 1, damping)
        torch.testing.assert_close(step, torch.full((2, 3), 1 + 2 * damping))


@both_phantoms
def test_adaptive_damping_has_a_word(kind: type[NeumannPhantomGradient]) -> None:
    estimator = kind(5, "adaptive")
    assert estimator == kind(5, AdaptiveDamping())
    assert estimator.adaptation == AdaptiveDamping()
    with pytest.raises(ValueError, match=r"damping must lie in \(0, 1\], got 'adaptve'"):
        kind(5, "adaptve")
