"""What all estimators share: value, closed-form gradients, memory, graphs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import Affine, Counted, saved_tensors
from torch import Tensor

from phantomgrad import (
    Anderson,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
)
from phantomgrad.gradients.base import attach_by_cotangent

EXACT = Broyden(max_evaluations=60, tol=1e-12)
ESTIMATORS: dict[str, GradientEstimator] = {
    "implicit": ImplicitGradient(solver=EXACT),
    "implicit, order 2": ImplicitGradient(solver=EXACT, order=2),
    "unrolled": UnrolledPhantomGradient(5, 0.5),
    "neumann": NeumannPhantomGradient(5, 0.5),
}
SOLVERS: list[Solver] = [
    FixedPoint(max_evaluations=200, tol=1e-12),
    Anderson(max_evaluations=200, tol=1e-12),
    Broyden(max_evaluations=200, tol=1e-12),
]

every_estimator = pytest.mark.parametrize("gradient", ESTIMATORS.values(), ids=ESTIMATORS)


@every_estimator
@given(
    shape=st.lists(st.sampled_from([1, 2, 3]), min_size=0, max_size=4),
    batch=st.sampled_from([1, 3]),
    solver=st.sampled_from(SOLVERS),
)
def test_every_solver_with_every_estimator_in_every_shape(
    gradient: GradientEstimator, shape: list[int], batch: int, solver: Solver
) -> None:
    """On ``f(z) = a z + b``, a number per entry, the gradient by b is ``c(a) v``."""
    shape = [batch, *shape]
    a = torch.linspace(-0.5, 0.5, torch.Size(shape).numel()).view(shape)
    b = torch.ones(shape, requires_grad=True)
    f = lambda z: a * z + b  # noqa: E731
    with torch.no_grad():
        z = solver.solve(f, torch.zeros(shape)).z
    attached = gradient.attach(f, z)
    torch.testing.assert_close(attached, 1 / (1 - a), rtol=1e-9, atol=1e-9)
    v = torch.linspace(1, 2, a.numel()).view(shape)
    (ours,) = torch.autograd.grad(attached, b, v)
    missing = 0 if isinstance(gradient, ImplicitGradient) else (0.5 * a + 0.5) ** 5
    torch.testing.assert_close(ours, (1 - missing) / (1 - a) * v, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_memory_of_neumann_and_implicit_does_not_grow(steps: int) -> None:
    affine = Affine.random()

    def saved(gradient: GradientEstimator) -> int:
        with saved_tensors() as alive:
            attached = gradient.attach(affine, affine.equilibrium())
            count = alive()
            attached.sum().backward()
        return count

    one, unrolled = saved(NeumannPhantomGradient(1, 1.0)), saved(UnrolledPhantomGradient(1, 1.0))
    assert saved(NeumannPhantomGradient(steps, 0.5)) == one
    assert saved(ImplicitGradient(solver=FixedPoint(max_evaluations=steps + 9))) == one
    assert saved(UnrolledPhantomGradient(steps, 1.0)) >= steps * unrolled


@every_estimator
def test_no_gradient_reaches_z_star(gradient: GradientEstimator) -> None:
    """No gradient reaches whatever produced ``z_star``: it is a point, not a path."""
    affine = Affine.random()
    z_star = affine.equilibrium().requires_grad_()
    (grad,) = torch.autograd.grad(gradient.attach(affine, z_star).sum(), z_star, allow_unused=True)
    assert grad is None


def test_the_cotangent_is_transformed_once_per_backward() -> None:
    """``attach_by_cotangent`` hands ``transform(vjp, v)`` to f, whose graph it evaluates once."""
    affine, v, seen = Affine.random(), torch.randn(3, 5), list[Tensor]()
    counted = Counted(affine)

    def transform(vjp: object, cotangent: Tensor) -> Tensor:
        seen.append(cotangent)
        return 3 * cotangent

    attached = attach_by_cotangent(counted, affine.equilibrium(), transform)
    attached.backward(v)
    assert counted.calls == 1
    assert torch.equal(seen[0], v)
    assert len(seen) == 1
    torch.testing.assert_close(affine.bias.grad, 3 * v)
