"""The parts, state, copies and cells of a layer; nested and frozen layers."""

import contextlib
from dataclasses import replace

import pytest
import torch
import torch.utils.checkpoint
from methods import SOLVER, every_estimator, parameter_gradients
from problems import Chain, TanhCell, relative_error
from torch import nn

import phantomgrad as pg
from phantomgrad.nn import VariationalDropout, current_pass

UPG = pg.UnrolledPhantomGradient(5, 0.5)


@every_estimator
def test_solver_and_gradient_can_be_replaced(parts):
    x, deq = torch.randn(3, 4), pg.DEQ(TanhCell(), pg.FixedPoint(), UPG)
    deq.solver = parts.solver
    deq.gradient = parts.gradient
    expected = parameter_gradients(pg.DEQ(TanhCell(), *parts), x)
    assert relative_error(parameter_gradients(deq, x), expected) == 0


def test_a_call_may_have_a_solver_of_its_own():
    training = pg.FixedPoint(max_evaluations=6, tol=0)
    layer = pg.DEQ(TanhCell(), training, UPG)

    def spent(**options):
        return int(layer(torch.ones(2, 4), **options)[1].evaluations.max())

    assert spent() == 6
    assert spent(solver=replace(training, max_evaluations=3)) == 3
    assert layer.eval().solver is training


class Learned(nn.Module, pg.GradientEstimator):
    """A one-step gradient with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def attach(self, f, z_star, report=None):
        return self.scale * f(z_star)


def test_a_gradient_may_be_a_module():
    deq, learned = pg.DEQ(TanhCell(), SOLVER, UPG), Learned()
    deq.gradient = learned
    assert deq.gradient is learned
    deq(torch.randn(3, 4))[0].sum().backward()
    assert learned.scale.grad is not None
    assert any(parameter is learned.scale for parameter in deq.parameters())


@every_estimator
def test_the_last_solution_is_kept_for_logs(parts):
    """It is kept without its state, off every graph, and is not in the state dict."""
    deq = pg.DEQ(TanhCell(), *parts)
    assert deq.last_solution is None
    z, solution = deq(torch.randn(3, 4))
    assert not solution.z.requires_grad
    z.sum().backward()
    kept = deq.last_solution
    assert kept.z.numel() == 0
    assert not kept.residual.requires_grad
    assert torch.equal(kept.residual, solution.residual)
    assert torch.equal(kept.evaluations, solution.evaluations)
    assert set(deq.state_dict()) == {"cell.linear.weight", "cell.linear.bias"}
    deq.load_state_dict(deq.state_dict(), strict=True)


@pytest.mark.parametrize("order", [1, 2])
def test_the_last_adjoint_is_that_of_the_last_backward(order):
    adjoint = pg.Broyden(max_evaluations=60, tol=1e-10)
    deq = pg.DEQ(TanhCell(), SOLVER, pg.ImplicitGradient(solver=adjoint, order=order))
    z, _ = deq(torch.randn(3, 4))
    assert deq.last_adjoint is None
    z.square().sum().backward()
    assert deq.last_adjoint is not None
    assert deq.last_adjoint.z.numel() == 0
    assert deq.last_adjoint.converged.all()
    assert (deq.last_adjoint.evaluations > 2).all()
    phantom = pg.DEQ(TanhCell(), SOLVER, pg.NeumannPhantomGradient(5, 0.5))
    parameter_gradients(phantom, torch.randn(3, 4))
    assert phantom.last_adjoint is None


class Followed(nn.Module):
    """A cell with another module after it."""

    def __init__(self, module):
        super().__init__()
        self.cell, self.module = TanhCell(), module

    def forward(self, z, x):
        return self.module(self.cell(z, x))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Dropout(0.1), "different values for the same state"),
        (nn.BatchNorm1d(4), "mixes the samples"),
        (nn.Dropout(0.0), None),
        (VariationalDropout(0.1), None),
        (nn.LayerNorm(4), None),
    ],
)
def test_unsuitable_maps_are_pointed_out_once(module, message):
    """In the first training pass, which draws the same random numbers as without the test."""
    deq = pg.DEQ(Followed(module).double(), SOLVER, UPG)
    x, numbers = torch.randn(3, 4), []
    for expected in (message, None):
        torch.manual_seed(0)
        with pytest.warns(UserWarning, match=expected) if expected else contextlib.nullcontext():
            deq(x)
        numbers.append(torch.rand(()))
    assert numbers[0] == numbers[1]
    deq = pg.DEQ(Followed(nn.Dropout(0.1)), SOLVER, UPG)
    deq.check_map = False
    deq(x)


def test_the_test_for_mixing_waits_for_two_samples():
    calls = []
    deq = pg.DEQ(Chain(), pg.FixedPoint(max_evaluations=2, tol=0), UPG)
    deq.cell.register_forward_hook(lambda *_: calls.append(None))
    counts = []
    for batch, expected in ((1, None), (1, None), (3, "mixes the samples"), (3, None)):
        calls.clear()
        with pytest.warns(UserWarning, match=expected) if expected else contextlib.nullcontext():
            deq(torch.randn(batch, 1))
        counts.append(len(calls))
    assert [count - counts[-1] for count in counts] == [0, 0, 4, 0]


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout, self.masks = VariationalDropout(0.4), []

    def forward(self, z, x):
        out = self.dropout(torch.tanh(0.3 * z + x))
        self.masks.append(current_pass().masks[id(self.dropout)])
        return out


class Outer(nn.Module):
    """A map that solves for another equilibrium, which may be hidden from torch."""

    def __init__(self, hidden):
        super().__init__()
        inner = pg.DEQ(Inner(), SOLVER, UPG)
        self.parts = [inner] if hidden else nn.ModuleList([inner])

    def forward(self, z, x):
        return 0.3 * torch.tanh(self.parts[0](z + x)[0])


@pytest.mark.parametrize("hidden", [False, True])
def test_a_nested_equilibrium_keeps_its_masks_for_the_outer_solve(hidden):
    """Otherwise the outer map would have no equilibrium. The next pass draws new masks."""
    outer = Outer(hidden).train()
    deq, inner, masks = pg.DEQ(outer, SOLVER, UPG), outer.parts[0].cell, []
    for batch in (8, 8, 3):
        inner.masks.clear()
        _, solution = deq(torch.randn(batch, 4))
        assert solution.converged.all()
        assert all(mask is inner.masks[0] for mask in inner.masks)
        masks.append(inner.masks[0])
    assert not torch.equal(masks[0], masks[1])
    assert [len(mask) for mask in masks] == [8, 8, 3]


class Reentrant(TanhCell):
    """Hides its parameters in a custom autograd function."""

    def forward(self, z, x):
        return torch.utils.checkpoint.checkpoint(super().forward, z, x, use_reentrant=True)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_cell_with_hidden_parameters_is_not_treated_as_frozen():
    """Torch's reentrant checkpoint refuses vector-Jacobian products of such a cell."""
    deq = pg.DEQ(Reentrant(), SOLVER, pg.NeumannPhantomGradient(3, 0.5))
    z, _ = deq(torch.randn(3, 4))
    assert z.requires_grad
    with pytest.raises(RuntimeError, match="checkpoint"):
        z.sum().backward()


@every_estimator
def test_a_frozen_cell_has_a_graph_only_for_its_inputs(parts):
    deq = pg.DEQ(TanhCell().requires_grad_(False), *parts)
    z, _ = deq(torch.randn(3, 4))
    assert not z.requires_grad
    x = torch.randn(3, 4, requires_grad=True)
    deq(x)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.all()


def test_the_check_of_the_map_ignores_the_default_device():
    deq, x = pg.DEQ(TanhCell(), pg.FixedPoint(), UPG), torch.randn(3, 4)
    with torch.device("meta"):
        deq(x)
