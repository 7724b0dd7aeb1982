"""A program of a user: runs with the wheel, and `make lint` checks its types from outside."""

from typing import TYPE_CHECKING, assert_type

from torch import Tensor, nn, ones, tanh

import phantomgrad


class Cell(nn.Module):
    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return tanh(z / 2 + x)


gradient = phantomgrad.UnrolledPhantomGradient(steps=2, damping=0.5)
layer = phantomgrad.DEQ(Cell(), phantomgrad.FixedPoint(), gradient)
result = layer(ones(2, 3))
assert_type(result, phantomgrad.Equilibrium)
assert_type(result.solution.converged, Tensor)
assert result.solution.converged.all()

if TYPE_CHECKING:  # mistakes, of which an unused ignore would be an error
    phantomgrad.DEQ(Cell(), 3, gradient)  # type: ignore[arg-type]
    phantomgrad.FixedPoint(max_evaluation=3)  # type: ignore[call-arg]
