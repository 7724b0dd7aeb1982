"""A fixed number of applications, and a layer that counts them in both modes."""

import math

import pytest
import torch
from problems import TanhCell
from torch import nn

import phantomgrad as pg
from phantomgrad.solvers import LogNormalPoissonDepth


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("damping", [1.0, 0.5])
def test_it_applies_the_map_n_times_and_returns_the_last_iterate(n, damping):
    """Also where the map expands, and the start has the smallest residual."""
    z0, calls = torch.randn(3, 4), []

    def f(z):
        calls.append(z)
        return 1.5 * z + 1

    solution = pg.Steps(n, damping).solve(f, z0)
    expected = z0
    for _ in range(n):
        expected = damping * (1.5 * expected + 1) + (1 - damping) * expected
    torch.testing.assert_close(solution.z, expected)
    assert len(calls) == n
    assert solution.evaluations.tolist() == [n] * 3
    assert not solution.converged.any()


def test_the_residual_is_that_of_the_last_state_evaluated():
    z0 = torch.tensor([[1.0], [-2.0], [0.0]])
    solution = pg.Steps(2).solve(lambda z: z / 2, z0)  # from z0/2 to z0/4
    torch.testing.assert_close(solution.residual, torch.tensor([1.0, 1.0, 0.0]))
    assert pg.Steps(0).solve(lambda z: z / 2, z0).residual.isnan().all()


@pytest.mark.parametrize(
    ("gradient", "more"),
    [
        (pg.UnrolledPhantomGradient(3, 0.5), 3),
        (pg.NeumannPhantomGradient(3, 0.5), 0),
        (pg.NeumannPhantomGradient(3, 0.5, value="image"), 1),
        (pg.ImplicitGradient(at="image"), 1),
        (pg.BackpropThroughSolver(), 0),
    ],
    ids=repr,
)
def test_training_and_evaluation_take_the_same_number_of_applications(gradient, more):
    cell, x, z0 = TanhCell(), torch.randn(3, 4), torch.randn(3, 4)
    layer = pg.DEQ(cell, pg.Steps(4), gradient)
    layer.check_map = False
    trained, _ = layer(x, z0=z0)
    calls = []
    cell.register_forward_hook(lambda *_: calls.append(None))
    with torch.no_grad():
        evaluated, _ = layer.eval()(x, z0=z0)
    assert torch.equal(trained, evaluated)
    assert not evaluated.requires_grad
    assert len(calls) == 4 + more


def test_without_derivatives_a_gradient_of_order_2_leaves_the_value():
    gradient = pg.ImplicitGradient(order=2)
    layer, x = pg.DEQ(TanhCell(), pg.Steps(3), gradient), torch.randn(2, 4)
    expected = layer(x).z
    with torch.inference_mode():
        assert torch.equal(layer(x).z, expected)


def test_a_counter_of_the_steps_may_be_a_part_of_the_state():
    """A map of the counter is defined for the numbers of the steps only, so it is not checked."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Embedding(4, 3)

        def forward(self, state, x):
            z, t = state
            return torch.tanh(z + x + self.bias(t.long().squeeze(1))), t + 1

    cell, x = Counting(), torch.randn(2, 3)
    z, t = pg.DEQ(cell, pg.Steps(4), pg.BackpropThroughSolver())(x, z0=(x * 0, x[:, :1] * 0)).z
    assert t.tolist() == [[4], [4]]
    expected = torch.zeros(2, 3)
    for bias in cell.bias.weight:
        expected = torch.tanh(expected + x + bias)
    torch.testing.assert_close(z, expected)


def test_norms_do_not_overflow_in_half_precision():
    z0 = torch.zeros(1, 65536, dtype=torch.float16)
    solution = pg.Steps(3).solve(lambda z: 600 - z / 2, z0)  # from 300 to 450
    assert (solution.z == 450).all()
    assert solution.residual.item() == pytest.approx(1 / 3, rel=1e-3)


def test_the_depth_has_the_stated_distribution():
    """Mean r + 1 and variance r + r^2 (exp(sigma^2) - 1)."""
    torch.manual_seed(0)
    depth = LogNormalPoissonDepth(8.0, sigma=0.5)
    drawn = torch.tensor([depth() for _ in range(20000)]).double()
    assert drawn.min() >= 1
    assert drawn.mean().item() == pytest.approx(9, rel=0.02)
    assert drawn.var().item() == pytest.approx(8 + 64 * (math.exp(0.25) - 1), rel=0.1)
    assert LogNormalPoissonDepth(1e4, sigma=0.0)() == pytest.approx(1e4, rel=0.1)


def test_a_random_depth_is_drawn_once_a_pass_in_training_alone():
    cell, x = TanhCell(), torch.randn(3, 4)
    depth = LogNormalPoissonDepth(24)
    layer = pg.DEQ(cell, pg.Steps(4, depth=depth), pg.BackpropThroughSolver())
    torch.manual_seed(3)
    drawn = [depth() for _ in range(3)]
    torch.manual_seed(3)
    passes = [layer(x, solver=solver) for solver in (None, layer.solver, layer.solver)]
    assert [int(solution.evaluations[0]) for _, solution in passes] == drawn
    assert len(set(drawn)) > 1
    state = torch.random.get_rng_state()
    evaluated, solution = layer.eval()(x)
    assert solution.evaluations.tolist() == [4] * 3
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.testing.assert_close(
        evaluated, pg.DEQ(cell, pg.Steps(4), pg.BackpropThroughSolver())(x).z
    )
