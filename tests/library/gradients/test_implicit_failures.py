"""Adjoint solves that fail."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from problems import Affine, Map
from torch import Tensor

from phantomgrad import (
    AdjointError,
    AdjointWarning,
    FixedPoint,
    ImplicitGradient,
    NeumannPhantomGradient,
)

HOPELESS = FixedPoint(max_evaluations=4, tol=1e-12, stop="absolute")


def expanding() -> Affine:
    """Sample 1 has a Jacobian of radius 3, on which a fixed-point adjoint diverges."""
    affine = Affine.random()
    weight = affine.weight.detach().clone()
    weight[1] = 3 * torch.eye(5)
    weight[[0, 2]] = 0.001 * torch.eye(5)
    return Affine(weight.requires_grad_(), affine.bias)


def bias_gradient(gradient: ImplicitGradient, v: Tensor) -> Tensor:
    """Return the gradient of ``<v, z*>`` by the bias of the half-expanding map."""
    affine = expanding()
    attached = gradient.attach(affine, affine.equilibrium())
    (result,) = torch.autograd.grad(attached, affine.bias, v)
    return result


def test_a_failed_adjoint_warns_once_and_gives_the_one_step_gradient() -> None:
    v = torch.randn(3, 5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")  # shows every text once
        for _ in range(3):
            result = bias_gradient(ImplicitGradient(solver=HOPELESS), v)
    (warning,) = seen
    assert warning.category is AdjointWarning
    assert "failed for some samples: residual above 0.1" in str(warning.message)
    torch.testing.assert_close(result[1], v[1])
    torch.testing.assert_close(result[[0, 2]], v[[0, 2]] / 0.999, rtol=1e-9, atol=1e-9)


def test_a_failed_adjoint_can_raise() -> None:
    message = "failed for 1 of 3 samples: residual .* after 4 evaluations"
    with pytest.raises(AdjointError, match=message):
        bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="raise"), torch.ones(3, 5))


def test_a_failed_adjoint_can_be_replaced_by_a_phantom() -> None:
    v, affine = torch.randn(3, 5), expanding()
    result = bias_gradient(ImplicitGradient(solver=HOPELESS, on_failure="phantom"), v)
    phantom = NeumannPhantomGradient(5, 0.5).attach(affine, affine.equilibrium())
    (expected,) = torch.autograd.grad(phantom, affine.bias, v)
    torch.testing.assert_close(result[1], expected[1])
    torch.testing.assert_close(result[[0, 2]], v[[0, 2]] / 0.999, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("on_failure", ["warn", "ignore", "phantom"])
@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_a_failure_is_never_a_zero_gradient(on_failure: str, stop: str) -> None:
    solver = replace(HOPELESS, stop=stop)
    gradient = ImplicitGradient(solver=solver, on_failure=on_failure)  # type: ignore[arg-type]
    result = bias_gradient(gradient, torch.randn(3, 5))
    assert result.isfinite().all()
    assert (result.abs().amax(dim=1) > 0.1).all()


def test_a_nan_jacobian_fails_for_its_sample_only() -> None:
    """``sqrt`` at 0 has no derivative: that sample warns and keeps v, the other is exact."""
    x = torch.tensor([[0.0, 0.0], [0.3, 0.5]], requires_grad=True)
    f: Map = lambda z: 0.5 * torch.sqrt(z.square()) + x  # noqa: E731
    z, v = torch.tensor([[0.0, 0.0], [0.6, 1.0]]), torch.ones(2, 2)
    attached = ImplicitGradient().attach(f, z)
    with pytest.warns(AdjointWarning, match="failed for some samples"):
        (result,) = torch.autograd.grad(attached, x, v)
    torch.testing.assert_close(result, torch.tensor([[1.0, 1.0], [2.0, 2.0]]))


@pytest.mark.parametrize("stop", ["relative", "absolute"])
@pytest.mark.parametrize("norm", ["l2", "rms", "max"])
def test_failure_is_judged_by_the_relative_residual(stop: str, norm: str) -> None:
    """An absolute residual of 1e-8 is a failure for a cotangent of that size."""
    v = 1e-8 * torch.ones(3, 5)
    gradient = ImplicitGradient(solver=replace(HOPELESS, stop=stop, norm=norm, tol=1e-7))
    with pytest.warns(AdjointWarning, match="failed for some samples"):
        bias_gradient(gradient, v)


def test_a_slow_adjoint_above_the_threshold_fails() -> None:
    """``failure_residual`` is where the line is drawn."""
    affine, v = Affine.random(norm=0.9), torch.randn(3, 5)
    short = FixedPoint(max_evaluations=3, tol=1e-12)
    attach = lambda threshold: ImplicitGradient(  # noqa: E731
        solver=short, failure_residual=threshold
    ).attach(affine, affine.equilibrium())
    residual = short.solve(lambda u: (affine.weight.mT @ u.unsqueeze(2)).squeeze(2) + v, v).residual
    worst = residual.max().item()
    attach(1.01 * worst).backward(v)
    with pytest.warns(AdjointWarning, match="failed for some samples"):
        attach(0.99 * worst).backward(v)
