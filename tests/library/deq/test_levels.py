"""Transforms of ``torch.func`` within each other: derivatives at several levels, and at none."""

import pytest
import torch
from problems import TanhCell
from torch import nn
from torch.func import grad, jacfwd, jvp, vmap

import phantomgrad as pg

X = torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 3)
TWO = torch.tensor(2.0, dtype=torch.float64)


def layer_of(gradient, **settings):
    solver = pg.FixedPoint(**{"max_evaluations": 40, "tol": 1e-13, **settings})
    return pg.DEQ(TanhCell(3, 0.5), solver, gradient)


def pushed(layer, x, tangent):
    return jvp(lambda x: layer(x).z, (x,), (tangent,))[1]


def slope(layer, x, scale=1.0):
    return grad(lambda x: scale * layer(x).z.sum())(x)


SECOND = {
    "grad of grad": lambda layer: grad(lambda x: slope(layer, x).sum())(X),
    "jvp of grad": lambda layer: jvp(lambda x: slope(layer, x), (X,), (X,)),
    "jvp of jvp": lambda layer: jvp(lambda x: pushed(layer, x, X), (X,), (X,)),
    "jacfwd of jacfwd": lambda layer: jacfwd(jacfwd(lambda x: layer(x).z.sum()))(X),
    "grad by the cotangent": lambda layer: grad(lambda a: slope(layer, X, a).sum())(TWO),
    "jacfwd by the cotangent": lambda layer: jacfwd(lambda a: slope(layer, X, a))(TWO),
    "grad by the tangent": lambda layer: grad(lambda a: pushed(layer, X, a * X).sum())(TWO),
    "jacfwd by the tangent": lambda layer: jacfwd(lambda a: pushed(layer, X, a * X))(TWO),
}


@pytest.mark.parametrize(
    "gradient", [pg.NeumannPhantomGradient(3, 0.5), pg.ImplicitGradient()], ids=["npg", "implicit"]
)
@pytest.mark.parametrize("call", SECOND.values(), ids=SECOND)
def test_a_derivative_of_an_estimate_is_refused(call, gradient):
    """Otherwise it would be zero."""
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        call(layer_of(gradient))


@pytest.mark.parametrize("gradient", [pg.NeumannPhantomGradient(3, 0.5), pg.ImplicitGradient()])
def test_an_estimate_may_be_a_constant_of_an_outer_transform(gradient):
    layer = layer_of(gradient)
    expected = slope(layer, X).sum()
    torch.testing.assert_close(grad(lambda a: a * slope(layer, X).sum())(TWO), expected)
    moved = jvp(lambda a: a * pushed(layer, X, X), (TWO,), (torch.ones(()),))[1]
    torch.testing.assert_close(moved, pushed(layer, X, X))


@pytest.mark.parametrize("kind", [pg.FixedPoint, pg.Reversible])
def test_the_first_step_replaces_the_start_where_that_is_best(kind):
    layer = layer_of(pg.BackpropThroughSolver(), max_evaluations=1, damping=0.5)
    layer.solver = kind(max_evaluations=1, damping=0.5)
    fz = torch.tanh(layer.cell.linear.bias + X).detach()
    z, moved = jvp(lambda x: layer(x).z, (X,), (torch.ones_like(X),))
    by_sample = grad(lambda x: vmap(lambda x: layer(x.unsqueeze(0)).z)(x).sum())(X)
    expected = (1 - fz * fz) / 2
    torch.testing.assert_close((z, moved, by_sample), (fz / 2, expected, expected))


class Expanding(nn.Module):
    def forward(self, z, x):
        return x - 5 * z


@pytest.mark.parametrize("kind", [pg.FixedPoint, pg.Reversible])
def test_without_a_derivative_the_start_is_returned_where_that_is_best(kind):
    solver, start = kind(max_evaluations=5, stop="absolute"), torch.full((2, 3), 0.2)
    layer = pg.DEQ(Expanding(), solver, pg.BackpropThroughSolver())
    layer.check_map = False
    x = torch.full((2, 3), 2.0)
    assert torch.equal(layer(x, z0=start).z, start)
    by_sample = vmap(lambda x, z: layer(x.unsqueeze(0), z0=z.unsqueeze(0)).z)(x, start)
    assert torch.equal(by_sample.squeeze(1), start)
    other = jvp(lambda y: layer(x, z0=start).z + 0 * y, (x,), (x,))[0]
    assert torch.equal(other, start)
