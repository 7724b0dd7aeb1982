"""What wrong calls of a layer say."""

import pytest
import torch
from problems import CoupledCell, TanhCell
from torch import nn

import phantomgrad as pg

SOLVER, UPG, BPTT = pg.Broyden(), pg.UnrolledPhantomGradient(5, 0.5), pg.BackpropThroughSolver()
FORWARD = pg.ImplicitGradient(preconditioner="forward")
X = torch.zeros(3, 4, dtype=torch.float64)


def layer(*inputs, cell=CoupledCell, **keywords):
    return pg.DEQ(cell(), SOLVER, UPG)(*inputs, **keywords)


class Multiple(nn.Module):
    """Returns a second value."""

    def forward(self, z, x):
        return torch.tanh(z + x), x


def tanh_layer():
    return pg.DEQ(TanhCell(), SOLVER, UPG)


def recorded_layer():
    return pg.DEQ(TanhCell(), pg.FixedPoint(), BPTT)


CALLS = [
    # The errors of a cell, which may be any, say what it was called with.
    (lambda: layer(X[:, :3], cell=TanhCell), r"z: float64 \(3, 3\); .* width is then that of"),
    (lambda: layer(X, cell=TanhCell, z0=X.float()), "in float64, .* z: float32 .*inputs: .float64"),
    (lambda: layer(X), r"too many values(.|\n)*z: float64 \(3, 4\).*Several states are a tuple"),
    (lambda: layer(X, z0=X.new_zeros(3, 10)), r"z: float64 \(3, 10\).*not their packed solution.z"),
    (lambda: layer(X, cell=Multiple), "got tuple: .*only the next state(.|\n)*only the next z"),
    (lambda: layer(X, x=[X], cell=TanhCell), r"inputs: \(float64 \(3, 4\),\); keywords: {x: \[flo"),
    # What a layer returns is not a tensor; torch says so.
    (lambda: nn.Sequential(tanh_layer(), nn.Linear(4, 2))(X), "must be Tensor, not Equilibrium"),
    (lambda: nn.Sequential(tanh_layer(), tanh_layer())(X), "z0 is needed .*, got Equilibrium"),
    (lambda: pg.spectral_radius(tanh_layer(), X), "got Equilibrium: f is a map .* lambda z: layer"),
    # Parts that do not go together.
    (lambda: tanh_layer()(X, solver=pg.FixedPoint), "must be a phantomgrad.Solver"),
    (
        lambda: pg.DEQ(TanhCell(), pg.GMRES(), UPG),
        r"GMRES\(\) for adjoint equations only\), got GMRES",
    ),
    (lambda: setattr(recorded_layer(), "solver", SOLVER), r"Reversible, Steps\), got Broyden"),
    (lambda: recorded_layer()(X, solver=pg.Anderson()), "needs a solver that autograd can record"),
    (lambda: pg.DEQ(TanhCell(), pg.Anderson(), FORWARD), "needs the solver Broyden, got Anderson"),
    (
        lambda: pg.DEQ(TanhCell(), SOLVER, FORWARD)(X, solver=pg.FixedPoint()),
        "'forward' needs the solver Broyden, got FixedPoint",
    ),
    (lambda: FORWARD.attach(torch.tanh, X), r"for a DEQ: here, pass solution\.inverse"),
    # Settings of the solver, which are not inputs or attributes.
    (
        lambda: layer(X, cell=TanhCell, max_evaluations=3),
        r"solver=dataclasses.replace\(layer.solver",
    ),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_wrong_calls_are_explained(call, message):
    with pytest.raises(Exception, match=message):
        call()


def test_a_subclass_may_have_attributes_of_its_own():
    class Layer(pg.DEQ):
        steps = 0

    own = Layer(TanhCell(), SOLVER, UPG)
    own.steps = 3
    assert own(X).z.shape == X.shape


def test_a_refused_part_is_not_installed():
    layer = pg.DEQ(TanhCell(), SOLVER, UPG)
    with pytest.raises(ValueError, match="BackpropThroughSolver needs a solver that autograd"):
        layer.gradient = BPTT
    assert layer.gradient == UPG
