"""A layer inside the cell of another: its gradient is that of two nested loops."""

import itertools

import pytest
import torch
from problems import TanhCell, relative_error
from torch import Tensor, nn
from torch.func import functional_call, grad

import phantomgrad as pg

BROYDEN = pg.Broyden(max_evaluations=8, tol=1e-8)
METHODS = {
    "reversible": (
        pg.Reversible(max_evaluations=19, tol=1e-8, damping=0.8, backward_tol=1e-8),
        pg.BackpropThroughSolver(),
    ),
    "unrolled": (BROYDEN, pg.UnrolledPhantomGradient(8, 1.0)),
    "neumann": (BROYDEN, pg.NeumannPhantomGradient(8, 1.0)),
    "implicit": (BROYDEN, pg.ImplicitGradient(solver=BROYDEN)),
}
PAIRS = [pytest.param(o, i, id=f"{o} over {i}") for o, i in itertools.product(METHODS, METHODS)]
X = torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 3)


class Outer(nn.Module):
    """``tanh(W y + x) / 4`` at the equilibrium y of another cell, driven by ``z + x``."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.linear = inner, nn.Linear(3, 3)

    def forward(self, z, x):
        return torch.tanh(self.linear(self.inner(z + x).z) + x) / 4


def nested(outer, inner):
    torch.manual_seed(0)
    return pg.DEQ(Outer(pg.DEQ(TanhCell(3, 0.2), *METHODS[inner])), *METHODS[outer])


def looped(layer, x):
    z = torch.zeros_like(x)
    for _ in range(12):
        y = torch.zeros_like(x)
        for _ in range(12):
            y = layer.cell.inner.cell(y, z + x)
        z = torch.tanh(layer.cell.linear(y) + x) / 4
    return z


def gradients(layer, z):
    return torch.autograd.grad(z.square().sum(), list(layer.parameters()))


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_every_gradient_inside_every_other(outer, inner):
    layer = nested(outer, inner)
    expected = gradients(layer, looped(layer, X))
    assert relative_error(gradients(layer, layer(X).z), expected) < 1e-4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nested_in_one_graph_and_in_a_transform():
    layer = nested("unrolled", "reversible")
    layer.solver, layer.gradient = pg.Steps(1), pg.UnrolledPhantomGradient(1, 1.0)
    layer.cell.inner.solver = pg.Steps(1)
    for each in (layer, layer.cell.inner):
        each.check_map, each.fullgraph = False, True
    expected = gradients(layer, layer(X).z)
    z = torch.compile(layer, backend="eager", fullgraph=True)(X).z
    assert relative_error(gradients(layer, z), expected) < 1e-12
    weights = {name: p.detach() for name, p in layer.named_parameters()}
    found = grad(lambda w: functional_call(layer, w, (X,)).z.square().sum())(weights)
    assert relative_error(tuple(found.values()), expected) < 1e-12


class Holding(TanhCell):
    """A cell that is given a part of its input as an attribute."""

    given: Tensor

    def forward(self, z, x):
        return super().forward(z, self.given + x)


class OuterOfHolding(Outer):
    def forward(self, z, x):
        self.inner.cell.given = z
        return torch.tanh(self.linear(self.inner(x).z) + x) / 4


def test_a_state_of_the_outer_layer_as_attribute_of_the_inner_cell():
    """It is no input of the inner layer, whose gradient would not reach it."""
    inner = pg.DEQ(Holding(3, 0.2), *METHODS["reversible"])
    layer = pg.DEQ(OuterOfHolding(inner), *METHODS["neumann"])
    layer.check_map = inner.check_map = False
    with pytest.raises(ValueError, match="must not hold a tensor with a graph"):
        layer(X)
