"""What wrong calls of a layer say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from problems import CoupledCell, TanhCell
from torch import nn

import phantomgrad as pg

SOLVER, UPG = pg.Broyden(), pg.UnrolledPhantomGradient(5, 0.5)
X = torch.zeros(3, 4, dtype=torch.float64)


def layer(
    *inputs: object, cell: Callable[[], nn.Module] = CoupledCell, **keywords: object
) -> object:
    return pg.DEQ(cell(), SOLVER, UPG)(*inputs, **keywords)


class Multiple(nn.Module):
    """Returns a second value."""

    def forward(self, z: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.tanh(z + x), x


def set_attribute(name: str, value: object) -> object:
    changed = pg.DEQ(CoupledCell(), SOLVER, UPG)
    setattr(changed, name, value)
    return changed(X, z0=(X, X.new_zeros(3, 2, 3)))


def tanh_layer() -> pg.DEQ:
    return pg.DEQ(TanhCell(), SOLVER, UPG)


CALLS: list[tuple[Callable[[], object], str]] = [
    # The errors of a cell, which may be any, say what it was called with.
    (lambda: layer(X[:, :3], cell=TanhCell), r"z: float64 \(3, 3\); .* width is then that of"),
    (lambda: layer(X, cell=TanhCell, z0=X.float()), "in float64, .* z: float32 .*inputs: .float64"),
    (lambda: layer(X), r"too many values(.|\n)*z: float64 \(3, 4\).*Several states are a tuple"),
    (lambda: layer(X, z0=X.new_zeros(3, 10)), r"z: float64 \(3, 10\).*not their packed solution.z"),
    (lambda: layer(X, cell=Multiple), "got tuple: .*the next state alone(.|\n)*next z alone"),
    (lambda: layer(X, x=[X], cell=TanhCell), r"inputs: \(float64 \(3, 4\),\); keywords: {x: \[flo"),
    (lambda: set_attribute("penalty", lambda f, z: 0), "penalty is called as penalty.f, z, attach"),
    # What a layer returns is not a tensor.
    (lambda: nn.Sequential(tanh_layer(), nn.Linear(4, 2))(X), "linear was called on what a DEQ"),
    (lambda: nn.Sequential(tanh_layer(), nn.ReLU())(X), "module of your own that returns lay"),
    (lambda: nn.Sequential(tanh_layer(), tanh_layer())(X), "z0 is needed .*, got Equilibrium"),
    (lambda: nn.functional.mse_loss(tanh_layer()(X), X), "write z, solution = layer"),
    (lambda: tanh_layer()(X).sum(), "'sum' was called on what a DEQ returns, a pair: write z"),
    (lambda: tanh_layer()(X) + 1, "An operator was called on what a DEQ returns, a pair"),
    (lambda: 2 * tanh_layer()(X), "An operator was called on what a DEQ returns, a pair"),
    (lambda: X - tanh_layer()(X), "An operator was called on what a DEQ returns, a pair"),
    (lambda: pg.spectral_radius(tanh_layer(), X), "got Equilibrium: f is a map .* lambda z: layer"),
    (lambda: pg.jacobian_regularizer(tanh_layer(), X), "f must return one tensor, got Equilibrium"),
    # Settings of the solver, which are not inputs or attributes.
    (
        lambda: layer(X, cell=TanhCell, max_evaluations=3),
        r"for one call are solver=replace\(layer.solver",
    ),
    (lambda: set_attribute("tol", 1e-9), r"tol belongs to the solver .*replace.*, tol=1e-09\)"),
    (lambda: set_attribute("steps", 3), "steps belongs to the gradient of a layer"),
    (lambda: pg.DEQ(nn.GRUCell(4, 4), SOLVER, UPG), "cell must take its state first, got GRUCell"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_wrong_calls_are_explained(call: Callable[[], object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        call()


def test_a_subclass_may_have_attributes_of_its_own() -> None:
    class Layer(pg.DEQ):
        steps = 0

    own = Layer(TanhCell(), SOLVER, UPG)
    own.steps = 3
    assert own(X).z.shape == X.shape
