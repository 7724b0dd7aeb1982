"""Spectral radius and Jacobian regularisation."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from problems import Affine, Map, TanhCell, dense_jacobian, relative_error
from torch import Tensor

from phantomgrad import jacobian_regularizer, spectral_radius


def linear(*matrices: Tensor) -> tuple[Map, Tensor]:
    """The linear map with one matrix per sample, and a point."""
    weight = torch.stack(matrices)
    affine = Affine(weight, torch.zeros(weight.shape[:2]))
    return affine, torch.zeros(weight.shape[:2])


def rotation(radius: float, angle: float) -> Tensor:
    """A scaled rotation, whose eigenvalues are ``radius exp(+- i angle)``."""
    c, s = radius * math.cos(angle), radius * math.sin(angle)
    return torch.tensor([[c, -s], [s, c]])


def test_a_rotation_needs_the_norm_estimator() -> None:
    f, z = linear(rotation(0.9, 1.0), rotation(0.5, 2.0))
    torch.testing.assert_close(spectral_radius(f, z), torch.tensor([0.9, 0.5]))
    rayleigh = spectral_radius(f, z, estimator="rayleigh")
    expected = torch.tensor([0.9 * math.cos(1.0), abs(0.5 * math.cos(2.0))])
    torch.testing.assert_close(rayleigh, expected)


def test_a_symmetric_jacobian_satisfies_both_estimators() -> None:
    basis = torch.linalg.qr(torch.randn(5, 5)).Q
    values = torch.tensor([[-0.9, 0.5, 0.3, 0.1, 0.0], [0.8, -0.4, 0.2, 0.1, 0.0]])
    f, z = linear(*(basis @ torch.diag(v) @ basis.mT for v in values))
    for estimator in ("norm", "rayleigh"):
        radius = spectral_radius(f, z, estimator=estimator)  # type: ignore[arg-type]
        torch.testing.assert_close(radius, torch.tensor([0.9, 0.8]), rtol=1e-9, atol=0)


def test_tied_eigenvalues_of_opposite_sign_need_the_norm_estimator() -> None:
    f, z = linear(torch.diag(torch.tensor([0.9, -0.9])))
    assert spectral_radius(f, z).item() == pytest.approx(0.9, rel=1e-12)
    assert spectral_radius(f, z, estimator="rayleigh").item() < 0.89


def test_a_nonsymmetric_jacobian() -> None:
    f, z = linear(torch.tensor([[0.5, 10.0, 0.0], [0.0, 0.2, 5.0], [0.0, 0.0, -0.1]]))
    assert spectral_radius(f, z).item() == pytest.approx(0.5, rel=1e-9)


def test_a_random_jacobian_agrees_with_its_eigenvalues() -> None:
    cell, x, z = TanhCell(size=8), torch.randn(4, 8), torch.randn(4, 8)
    f: Map = lambda z: cell(z, x)  # noqa: E731
    exact = torch.linalg.eigvals(dense_jacobian(f, z)).abs().amax(dim=1)
    radius = spectral_radius(f, z, iterations=2000)
    torch.testing.assert_close(radius, exact, rtol=5e-3, atol=0)
    assert not radius.requires_grad


@pytest.mark.parametrize("estimator", ["norm", "rayleigh"])
def test_nilpotent_and_constant_maps_have_radius_zero(estimator: str) -> None:
    nilpotent, z = linear(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    for f in (nilpotent, lambda z: torch.ones_like(z)):
        radius = spectral_radius(f, z, estimator=estimator)  # type: ignore[arg-type]
        assert radius.tolist() == [0.0]


def test_the_start_comes_from_the_generator() -> None:
    f: Map = lambda z: torch.sin(z) * z.mean(dim=(1, 2), keepdim=True)  # noqa: E731
    z = torch.randn(3, 2, 4)
    estimates = [
        spectral_radius(f, z, iterations=3, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(estimates[0], estimates[1])
    assert not torch.equal(estimates[0], estimates[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"estimator": "qr"}, "estimator must be 'norm' or 'rayleigh', got 'qr'"),
    ],
)
def test_misuse_of_the_spectral_radius(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spectral_radius(torch.sin, torch.zeros(1, 2), **options)  # type: ignore[arg-type]


# Regularisation -----------------------------------------------------------------------------


def tanh_problem() -> tuple[TanhCell, Tensor, Tensor]:
    """A cell, its input and a point."""
    return TanhCell(), torch.randn(3, 4), torch.randn(3, 4)


def exact_regularizer(weight: Tensor, bias: Tensor, x: Tensor, z: Tensor) -> Tensor:
    """``|J|_F^2 / N`` of ``tanh(W z + b + x)``, whose J is ``diag(1 - f^2) W``."""
    slope = 1 - torch.tanh(z @ weight.mT + bias + x).square()
    jacobian = slope.unsqueeze(2) * weight
    return jacobian.square().sum() / z.numel()


def test_its_expectation_is_the_frobenius_norm() -> None:
    cell, x, z = tanh_problem()
    draws = torch.stack([jacobian_regularizer(lambda z: cell(z, x), z) for _ in range(400)])
    many = jacobian_regularizer(lambda z: cell(z, x), z, samples=2000)
    exact = exact_regularizer(cell.linear.weight, cell.linear.bias, x, z).item()
    error = draws.std().item() / 20
    assert draws.mean().item() == pytest.approx(exact, abs=4 * error)
    assert many.item() == pytest.approx(exact, abs=4 * draws.std().item() / math.sqrt(2000))


def test_its_gradient_is_that_of_its_expectation() -> None:
    cell, x, z = tanh_problem()
    wanted = list(cell.parameters())
    estimate = jacobian_regularizer(lambda z: cell(z, x), z, samples=3000)
    ours = torch.autograd.grad(estimate, wanted)
    exact = exact_regularizer(cell.linear.weight, cell.linear.bias, x, z)
    assert relative_error(ours, torch.autograd.grad(exact, wanted)) < 0.05


def test_its_gradient_passes_gradcheck() -> None:
    weight = TanhCell(size=3).linear.weight

    def penalty(weight: Tensor, x: Tensor, z: Tensor) -> Tensor:
        return jacobian_regularizer(
            lambda z: torch.tanh(z @ weight.mT + x),
            z,
            samples=2,
            generator=torch.Generator().manual_seed(0),
        )

    x, z = torch.randn(2, 2, 3).unbind()
    assert torch.autograd.gradcheck(penalty, (weight, x.requires_grad_(), z.requires_grad_()))


def test_a_detached_state_keeps_the_gradient_off_the_equilibrium() -> None:
    """``z`` on a graph is penalised through, ``z.detach()`` is not."""
    cell, x, z = tanh_problem()
    z.requires_grad_()
    through = jacobian_regularizer(lambda z: cell(z, x), z)
    assert torch.autograd.grad(through, z)[0].any()
    detached = jacobian_regularizer(lambda z: cell(z, x), z.detach())
    assert torch.autograd.grad(detached, z, allow_unused=True)[0] is None


def test_a_constant_map_is_not_penalised() -> None:
    b = torch.ones(2, 3, requires_grad=True)
    assert jacobian_regularizer(lambda z: 2 * b, torch.zeros(2, 3)).item() == 0
    assert jacobian_regularizer(lambda z: torch.ones(2, 3), torch.zeros(2, 3)).item() == 0


def test_one_sample_is_needed() -> None:
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        jacobian_regularizer(torch.sin, torch.zeros(1, 2), samples=0)


# --- Where no graph is recorded -----------------------------------------------------------------


def test_without_grad_both_are_what_they_are_with() -> None:
    z, cell = torch.randn(3, 4), TanhCell()
    x = torch.randn(3, 4)
    f = lambda z: cell(z, x)  # noqa: E731
    measured = lambda: (  # noqa: E731
        spectral_radius(f, z, generator=torch.Generator().manual_seed(0)),
        jacobian_regularizer(f, z, generator=torch.Generator().manual_seed(0)),
    )
    radius, penalty = measured()
    with torch.no_grad():
        assert torch.equal(measured()[0], radius)
        assert torch.equal(measured()[1], penalty)
        assert not measured()[1].requires_grad


@pytest.mark.parametrize("measure", [spectral_radius, jacobian_regularizer])
def test_inference_mode_is_refused(measure: Callable[..., Tensor]) -> None:
    with (
        torch.inference_mode(),
        pytest.raises(RuntimeError, match="cannot be taken under torch"),
    ):
        measure(torch.tanh, torch.randn(3, 4))


def test_a_penalty_in_half_precision_does_not_overflow() -> None:
    z = torch.zeros(64, 4096, dtype=torch.float16)
    found = jacobian_regularizer(lambda z: 300 * z, z)
    assert found.item() == pytest.approx(300**2, rel=0.05)
