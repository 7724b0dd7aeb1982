"""Estimators compared with the exact gradient, against closed forms of affine maps."""

from __future__ import annotations

import math

import pytest
import torch
from problems import Affine, TanhCell, newton_equilibrium, relative_error
from problems import exact_gradient as dense_gradient
from torch import Tensor

from phantomgrad import (
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
    agreement,
    estimated_gradient,
    exact_gradient,
)

TIGHT = Broyden(max_evaluations=60, tol=1e-13)
LOOSE = FixedPoint(max_evaluations=5, tol=0)
STEPS_AND_DAMPING = [(1, 1.0), (1, 0.5), (5, 0.5), (9, 0.5), (5, 1.0)]


@pytest.fixture
def affine() -> Affine:
    return Affine.random()


@pytest.fixture
def v(affine: Affine) -> Tensor:
    return torch.randn_like(affine.bias)


def phantom(affine: Affine, v: Tensor, steps: int, damping: float) -> tuple[Tensor, Tensor]:
    """``damping (I + B + ...) v`` with dense powers, by weight and bias at the equilibrium."""
    eye = torch.eye(v.shape[1])
    b = damping * affine.weight.detach().mT + (1 - damping) * eye
    series = damping * sum(torch.linalg.matrix_power(b, i) for i in range(steps))
    u = torch.bmm(series, v.unsqueeze(2)).squeeze(2)
    return u.unsqueeze(2) * affine.equilibrium().unsqueeze(1), u


def joined(gradient: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([g.flatten() for g in gradient])


@pytest.mark.parametrize("estimator", [UnrolledPhantomGradient, NeumannPhantomGradient])
@pytest.mark.parametrize(("steps", "damping"), STEPS_AND_DAMPING)
def test_cosine_and_norm_ratio_are_the_dense_ones(
    affine: Affine, v: Tensor, estimator: type[GradientEstimator], steps: int, damping: float
) -> None:
    wanted = (affine.weight, affine.bias)
    ours = estimated_gradient(
        affine,
        affine.equilibrium(),
        v,
        estimator(steps, damping),  # type: ignore[call-arg]
        wanted,
    )
    dense, exact = phantom(affine, v, steps, damping), affine.exact_gradient(v)
    assert relative_error(ours, dense) < 1e-12
    found = agreement(ours, exact)
    a, b = joined(dense), joined(exact)
    assert found.cosine == pytest.approx(torch.cosine_similarity(a, b, dim=0).item(), rel=1e-12)
    assert found.norm_ratio == pytest.approx((a.norm() / b.norm()).item(), rel=1e-12)
    assert 0 < found.cosine < 1 - 1e-6


def test_exact_gradient_is_the_dense_one_with_its_residuals(affine: Affine, v: Tensor) -> None:
    rough = LOOSE.solve(affine, affine.zeros).z
    wanted = (affine.weight, affine.bias)
    found = exact_gradient(affine, rough, v, wanted, solver=TIGHT, adjoint=TIGHT)
    torch.testing.assert_close(found.z, affine.equilibrium(), rtol=1e-10, atol=1e-12)
    assert relative_error(found.gradient, affine.exact_gradient(v)) < 1e-10
    assert bool((found.residual < 1e-12).all())
    assert bool((found.adjoint_residual < 1e-12).all())
    loose = exact_gradient(affine, rough, v, wanted, solver=LOOSE, adjoint=LOOSE)
    assert bool((loose.residual > 1e-4).all())
    assert bool((loose.adjoint_residual > 1e-3).all())


def test_exact_gradient_of_a_nonlinear_map() -> None:
    cell, x = TanhCell(), torch.randn(3, 4)
    wanted, v = list(cell.parameters()), torch.randn(3, 4)
    z = newton_equilibrium(lambda z: cell(z, x), torch.zeros(3, 4))
    found = exact_gradient(
        lambda z: cell(z, x), torch.zeros(3, 4), v, wanted, solver=TIGHT, adjoint=TIGHT
    )
    assert relative_error(found.gradient, dense_gradient(lambda z: cell(z, x), z, v, wanted)) < 1e-9


@pytest.mark.parametrize("grad", [True, False])
def test_no_grad_is_accumulated_and_graphs_stay_usable(
    affine: Affine, v: Tensor, grad: bool
) -> None:
    """In any autograd mode."""
    shared = 1.0 * affine.weight
    f = Affine(shared, affine.bias)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            estimated_gradient(f, affine.zeros, v, UnrolledPhantomGradient(2, 0.5), [affine.weight])
            exact_gradient(f, affine.zeros, v, [affine.weight], solver=TIGHT, adjoint=TIGHT)
    shared.sum().backward()
    assert affine.weight.grad is not None
    assert torch.equal(affine.weight.grad, torch.ones_like(affine.weight))
    assert affine.bias.grad is None


def test_unused_tensors_have_zero_gradients(affine: Affine, v: Tensor) -> None:
    unused = torch.ones(2, requires_grad=True)
    one_step = UnrolledPhantomGradient(1, 1.0)
    (ours,) = estimated_gradient(affine, affine.zeros, v, one_step, [unused])
    assert torch.equal(ours, torch.zeros(2))
    assert estimated_gradient(affine, affine.zeros, v, one_step, []) == ()
    exact = exact_gradient(torch.zeros_like, affine.zeros, v, [unused], solver=TIGHT, adjoint=TIGHT)
    assert torch.equal(exact.gradient[0], torch.zeros(2))


def test_agreement_concatenates_the_tensors() -> None:
    a, b = (
        (torch.tensor([3.0]), torch.tensor([[4.0]])),
        (torch.tensor([8.0]), torch.tensor([[-6.0]])),
    )
    assert agreement(a, b) == pytest.approx((0.0, 0.5))
    assert agreement(a, tuple(-2 * x for x in a)) == pytest.approx((-1.0, 0.5))


def test_agreement_does_not_round_to_single_precision() -> None:
    exact = (torch.ones(1000, dtype=torch.float32),)
    estimate = (exact[0] + 1e-4 * torch.randn(1000).float(),)
    expected = torch.cosine_similarity(estimate[0].double(), exact[0].double(), dim=0)
    assert 1 - agreement(estimate, exact).cosine == pytest.approx(1 - expected.item(), rel=1e-6)


def test_vanishing_gradients_have_no_direction() -> None:
    zero, one = (torch.zeros(2),), (torch.ones(2),)
    assert all(math.isnan(value) for value in agreement(one, zero))
    found = agreement(zero, one)
    assert math.isnan(found.cosine)
    assert found.norm_ratio == 0


def test_misuse_is_refused(affine: Affine, v: Tensor) -> None:
    with pytest.raises(ValueError, match=r"shapes of exact, \[\(3,\)\], got \[\(2,\)\]"):
        agreement([torch.ones(2)], [torch.ones(3)])
    with pytest.raises(ValueError, match=r"got BackpropThroughSolver, which differentiates"):
        estimated_gradient(affine, affine.zeros, v, BackpropThroughSolver(), [affine.weight])
