"""Backpropagation through the solver."""

from __future__ import annotations

import pytest
import torch
from problems import Affine, TanhCell, relative_error

from phantomgrad import DEQ, BackpropThroughSolver, FixedPoint


@pytest.mark.parametrize("damping", [0.6, 1.0])
@pytest.mark.parametrize("evaluations", [2, 5, 12])
def test_it_is_autograd_through_the_loop_written_by_hand(damping: float, evaluations: int) -> None:
    cell, x, v = TanhCell(), torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    solver = FixedPoint(max_evaluations=evaluations, tol=0, damping=damping)
    z, _ = DEQ(cell, solver, BackpropThroughSolver())(x)
    by_hand = torch.zeros(3, 4)
    for _ in range(evaluations - 1):
        by_hand = damping * cell(by_hand, x) + (1 - damping) * by_hand
    wanted = [x, *cell.parameters()]
    torch.testing.assert_close(z, by_hand, rtol=1e-13, atol=1e-13)
    ours = torch.autograd.grad(z, wanted, v)
    assert relative_error(ours, torch.autograd.grad(by_hand, wanted, v)) < 1e-13


def test_samples_that_stop_early_have_the_gradient_of_their_own_steps() -> None:
    slopes = torch.tensor([[0.1], [0.8]])
    affine = Affine(torch.diag_embed(slopes), torch.ones(2, 1).requires_grad_())
    solution = FixedPoint(tol=1e-3).solve(affine, torch.zeros(2, 1))
    assert solution.evaluations[0] < solution.evaluations[1]
    (ours,) = torch.autograd.grad(solution.z.sum(), affine.bias)
    steps = (solution.evaluations - 1).unsqueeze(1)
    expected = (1 - slopes**steps) / (1 - slopes)  # 1 + s + ... + s^(T-1)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_a_sample_that_overflows_leaves_the_gradient_finite() -> None:
    slope, scale = torch.tensor(0.5, requires_grad=True), torch.tensor([[1.9], [1e30]])
    solver, zeros = FixedPoint(max_evaluations=200, tol=0), torch.zeros(2, 1)
    solution = solver.solve(lambda z: slope * scale * z + 1, zeros)
    alone = solver.solve(lambda z: slope * scale[:1] * z + 1, zeros[:1])
    assert not solution.converged[1]
    assert solution.z.isfinite().all()
    (ours,) = torch.autograd.grad(solution.z[0].sum(), slope)
    (expected,) = torch.autograd.grad(alone.z.sum(), slope)
    torch.testing.assert_close(ours, expected)
