"""What is computed again in the backward pass meets the weights and masks of its own pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from deq.estimators import ESTIMATORS, PICARD, every_estimator
from problems import relative_error
from torch import Tensor, nn

from phantomgrad import DEQ, GradientEstimator, Solver
from phantomgrad.nn import NormedLinear, VariationalDropout, recomputed


class Cell(nn.Module):
    """Weight norm and dropout around a nonlinearity, which may be computed again."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(NormedLinear(4, 8), nn.Tanh(), VariationalDropout(0.3))
        self.outer = NormedLinear(8, 4)
        self._again = again

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        inner: Any = recomputed(self.inner, z) if self._again else self.inner(z)
        return 0.2 * self.outer(inner) + x


def gradients(again: bool, solver: Solver, gradient: GradientEstimator) -> tuple[Tensor, ...]:
    """Of two passes, one on top of the other, behind both of which the mode has changed."""
    deq, x = DEQ(Cell(again), solver, gradient), torch.ones(3, 4)
    torch.manual_seed(1)
    first, _ = deq(x)
    second, _ = deq(first)
    deq.eval()
    return torch.autograd.grad(first.square().sum() + second.sum(), list(deq.parameters()))


@every_estimator
def test_each_pass_has_its_own(solver: Solver, gradient: GradientEstimator) -> None:
    ours, plain = (gradients(again, solver, gradient) for again in (True, False))
    assert relative_error(ours, plain) < 1e-12


def test_nothing_of_the_inside_is_kept() -> None:
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    block = nn.Sequential(nn.Linear(4, 50), nn.Tanh(), nn.Linear(50, 4))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        recomputed(block, torch.randn(3, 4, requires_grad=True))
    assert 3 * 50 not in sizes


def test_outside_of_a_pass_it_is_an_ordinary_call() -> None:
    layer, x = NormedLinear(4, 4), torch.randn(3, 4)
    ours, plain = (
        torch.autograd.grad(y.square().sum(), list(layer.parameters()))
        for y in (recomputed(layer, x), layer(x))
    )
    assert relative_error(ours, plain) < 1e-12


def test_a_function_says_where_its_weights_are() -> None:
    with pytest.raises(TypeError, match="within must be given if part is not a module, got"):
        recomputed(torch.tanh, torch.zeros(3))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_solve_calls_it_as_it_is() -> None:
    deq, x = DEQ(Cell(True), PICARD, ESTIMATORS["neumann"][1]), torch.ones(3, 4)
    deq.eval()
    plain = deq(x)[0]
    deq.compile_solve(backend="eager")
    torch.testing.assert_close(deq(x)[0], plain)
