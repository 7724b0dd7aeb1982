"""States on the way to the equilibrium: their values and gradients, and losses over them."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from methods import ESTIMATORS, PICARD, SOLVERS, DroppedCell
from problems import CoupledCell, GoldenCell, TanhCell, golden_file
from torch import nn

import phantomgrad as pg

REVERSIBLE = "through the reversible solver"
EVERY = {name: parts for name, parts in ESTIMATORS.items() if name != REVERSIBLE}
every_estimator = pytest.mark.parametrize("parts", EVERY.values(), ids=EVERY)

GOLDEN = golden_file("taps")
UPG = pg.UnrolledPhantomGradient
ONE = UPG(1, 1.0)
BPTT = pg.BackpropThroughSolver()

EXP = [0.8**2, 0.8, 1.0]

# Of torchdeq: n_states, indexing; grad, tau; the weights. Its pieces, in the sliced core, start
# from the end of the recorded steps of the one before.
CASES = {
    "default": (pg.Steps(12), (), ONE, ()),
    "indexing_3_6": (pg.Steps(12), (3, 6), ONE, ()),
    "n_states_5": (pg.Steps(12), (4, 6, 8, 10), ONE, ()),
    "n_states_4_grad2": (pg.Steps(12), (3, 6, 9), UPG(2, 1.0), ()),
    "tau.5_grad3": (pg.Steps(12), (4,), UPG(3, 0.5), ()),
    "sliced_indexing_3_6": (pg.Steps(14), (3, 7), ONE, ()),
    "sliced_n_states_3": (pg.Steps(14), (4, 9), ONE, ()),
    "sliced_n5": (pg.Steps(14), (2, 5, 8, 11), ONE, ()),
    "w_exp": (pg.Steps(12), (4, 8), ONE, EXP),
    "w_linear": (pg.Steps(12), (4, 8), ONE, [0.4, 0.7, 1.0]),
}


@pytest.mark.parametrize("search", [False, True], ids=["Steps", "FixedPoint"])
@pytest.mark.parametrize("name", CASES)
def test_picard_cases_of_torchdeq(name, search):
    """A search returns the last state that it has evaluated: it needs one evaluation more."""
    solver, record_at, gradient, weights = CASES[name]
    if search:
        solver = pg.FixedPoint(max_evaluations=solver.n + 1, tol=0)
    cell = GoldenCell()
    x = cell.inputs.requires_grad_()
    states, _ = pg.DEQ(cell, solver, gradient)(x, record_at=record_at)
    target = 0.3 * torch.cos(2 + torch.arange(2.0)[:, None] + 3 * torch.arange(5.0))
    weights = weights or [0.8**n for n in reversed(range(len(states)))]
    loss = sum(w * (z - target).square().sum() for w, z in zip(weights, states, strict=True))
    gradients = torch.autograd.grad(loss, [cell.weight, cell.bias, x])
    golden = GOLDEN["cases"][name]
    found = (torch.stack(states), loss, *gradients)
    for key, value in zip(("states", "loss", "grad_W", "grad_b", "grad_x"), found, strict=True):
        torch.testing.assert_close(value, torch.tensor(golden[key]), rtol=0, atol=1e-12)


def layer_of(parts, cell=None):
    return pg.DEQ(TanhCell() if cell is None else cell, *parts)


def gradients(loss, layer):
    return torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)


assert_equal = partial(torch.testing.assert_close, rtol=0, atol=0)


@every_estimator
def test_each_state_has_the_gradient_of_the_estimator_there(parts):
    """With backpropagation through the solver, that of as many steps."""
    layer, x, v = layer_of(parts), torch.randn(3, 4), torch.randn(3, 4)
    *taps, z = layer(x, record_at=(2, 5)).z
    plain = layer(x).z
    assert torch.equal(z, plain)
    assert_equal(gradients((z * v).sum(), layer), gradients((plain * v).sum(), layer))
    with torch.no_grad():
        bare = layer(x, record_at=(2, 5)).z
    for n, tap, point in zip((2, 5), taps, bare, strict=False):
        if parts.gradient.needs_recorded_solve:
            alone = layer(x, solver=pg.Steps(n)).z
        else:
            f = lambda z: layer.cell(z, x)  # noqa: E731
            solution = layer.gradient.adapt_solver(layer.solver).solve(f, torch.zeros_like(x))
            alone = layer.gradient.after(solution).attach(f, point)
        assert torch.equal(tap, alone)
        assert_equal(gradients((tap * v).sum(), layer), gradients((alone * v).sum(), layer))


@pytest.mark.parametrize("name", SOLVERS)
def test_a_state_is_what_the_solver_evaluates_next(name):
    """For every method; after n evaluations, the state has the residual ``trace[n]``."""
    solver = replace(SOLVERS[name], record_trace=True, tol=1e-9)
    layer, x = pg.DEQ(TanhCell(), solver, ONE), torch.randn(3, 4)
    layer.check_map = False
    points = []
    layer.cell.register_forward_pre_hook(lambda _, inputs: points.append(inputs[0].clone()))
    with torch.no_grad():
        (first, third, z), solution = layer(x, record_at=(1, 3))
    assert solution.evaluations.min() > 4
    assert torch.equal(first, points[1])
    assert torch.equal(third, points[3])
    assert torch.equal(z, solution.z)
    g = layer.cell(third, x) - third
    residual = g.norm(dim=1) / (g + third).norm(dim=1)
    torch.testing.assert_close(residual, solution.trace[3])


def test_a_sample_that_has_stopped_is_at_its_final_value():
    """Converged at once, converged later, with a state that is not finite, or never finite."""

    class Squares(nn.Module):
        def forward(self, z, x):
            return z * z * x[:, :1] + x[:, 1:]

    x = torch.tensor([[0.0, 0.0], [0.5, 0.3], [1e200, 1.0], [0.0, torch.nan]])
    layer = pg.DEQ(Squares(), pg.FixedPoint(tol=1e-6), ONE)
    with torch.no_grad():
        states, solution = layer(x, z0=torch.zeros(4, 1), record_at=(1, 2, 3, 30, 99))
    assert solution.evaluations.tolist()[::2] == [1, 3]
    assert solution.diverged.tolist() == [False, False, True, True]
    assert 5 < solution.evaluations[1] < 30
    for state in states:
        assert torch.equal(state[0], solution.z[0])
        assert state[2].isfinite()
        assert state[3].isnan()
    assert [state[1].item() for state in states[:2]] == [0.3, 0.3 * 0.3 * 0.5 + 0.3]
    assert torch.equal(states[3][1], solution.z[1])
    torch.testing.assert_close(states[3], states[-1], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("coupled", [False, True])
def test_states_have_the_structure_of_the_start(coupled):
    x, z0 = torch.randn(3, 4), (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    cell, v = CoupledCell(), torch.randn(3, 4)
    layer = pg.DEQ(cell, pg.FixedPoint(max_evaluations=9, tol=0), ONE, coupled=coupled)
    states, _ = layer(x, z0=z0, record_at=(3,))
    assert [tuple(part.shape for part in state) for state in states] == [((3, 4), (3, 2, 3))] * 2
    z = z0
    for _ in range(3):
        z = cell(z, x)
    z = cell(tuple(part.detach() for part in z), x)
    assert_equal(states[0], z)
    gradients = [
        torch.autograd.grad((a * v).sum() + b.sum(), list(cell.parameters()))
        for a, b in (states[0], z)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-13, atol=1e-15)


def test_every_mode_returns_as_many_states():
    """Without a graph too; Steps keep the last steps."""
    layer, x = pg.DEQ(TanhCell(), pg.Steps(2), UPG(2, 1.0)), torch.randn(3, 4)
    with torch.no_grad():
        states, solution = layer.eval()(x, record_at=(1, 7))
    assert solution.evaluations.tolist() == [2, 2, 2]
    z, applied = torch.zeros(3, 4), []
    for _ in range(4):
        z = layer.cell(z, x).detach()
        applied.append(z)
    assert_equal(states, [applied[2], applied[3], applied[3]])
    assert len(layer(x, record_at=()).z) == 1


def test_recording_costs_no_evaluation_in_the_solve_and_shares_its_masks():
    cell, x = DroppedCell(), torch.randn(3, 4)
    layer = pg.DEQ(cell, replace(PICARD, max_evaluations=8), UPG(2, 0.5))
    layer.check_map = False
    layer(x, record_at=(2, 4))
    assert len(cell.masks) == 8 + 3 * 2
    assert all(mask is cell.masks[0] for mask in cell.masks)


def test_the_last_adjoint_is_that_of_the_solution():
    gradient = pg.ImplicitGradient(solver=pg.FixedPoint(max_evaluations=90, tol=1e-9))
    layer, x = pg.DEQ(TanhCell(), PICARD, gradient), torch.randn(3, 4)
    layer(x).z.square().sum().backward()
    alone = layer.last_adjoint.residual
    states = layer(x, record_at=(1, 2)).z
    square = lambda z: z.square().sum()  # noqa: E731
    sum(map(square, states)).backward()
    assert torch.equal(layer.last_adjoint.residual, alone)
