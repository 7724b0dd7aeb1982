"""Cases that once gave a wrong result without a word."""

import pytest
import torch
from problems import Chain, TanhCell, relative_error
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import phantomgrad as pg
from phantomgrad.graphs import normalized_adjacency
from phantomgrad.models.ignn import ImplicitGraphLayer

SOLVER = pg.Broyden(max_evaluations=60, tol=1e-10)
UPG = pg.UnrolledPhantomGradient(5, 0.5)
every_solver = pytest.mark.parametrize("kind", [pg.FixedPoint, pg.Anderson, pg.Broyden])


class Affine(nn.Module):
    """``w z + x``."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, z, x):
        return self.w * z + x


def test_a_sample_that_overflows_has_not_converged():
    """The norm of f(z) overflows float32 before that of f(z) - z."""
    x, solver = torch.ones(2, 3, dtype=torch.float32), pg.FixedPoint(max_evaluations=120)
    assert not solver.solve(lambda z: 1.5 * z + x, torch.zeros_like(x)).converged.any()
    gradient = pg.ImplicitGradient(solver=solver, on_failure="raise")
    z, _ = pg.DEQ(Affine(1.5).float(), solver, gradient)(x)
    with pytest.raises(pg.AdjointError):
        z.sum().backward()


@every_solver
def test_zero_is_found_from_elsewhere(kind):
    """The relative residual of ``f(z) = z / 2`` is 1 everywhere but at its rounding error."""
    z0 = torch.ones(2, 3, dtype=torch.float32)
    solution = kind(max_evaluations=60).solve(lambda z: z / 2, z0)
    assert solution.converged.all()
    assert solution.z.abs().max() < 1e-8


class Uses(nn.Module):
    """A cell that uses a module which it does not own."""

    def forward(self, z, x, linear):
        return torch.tanh(linear(z) + x)


@pytest.mark.parametrize("gradient", [UPG, pg.ImplicitGradient(solver=SOLVER)])
def test_weights_that_the_cell_does_not_own_get_a_gradient(gradient):
    linear, x = weight_norm(TanhCell().linear), torch.randn(2, 4)
    z, _ = pg.DEQ(Uses(), SOLVER, gradient)(x, linear)
    ours = torch.autograd.grad(z.square().sum(), list(linear.parameters()))
    cell = TanhCell()
    cell.linear = linear
    z, _ = pg.DEQ(cell, SOLVER, gradient)(x)
    expected = torch.autograd.grad(z.square().sum(), list(linear.parameters()))
    assert relative_error(ours, expected) < 1e-12


@pytest.mark.parametrize("w", [0.5, 4.0])
def test_backpropagation_from_the_best_iterate_reaches_the_first_step(w):
    """A start at the equilibrium, and a map that does not contract: dz_1/dw = z_0."""
    x = torch.ones(2, 3)
    solver = pg.FixedPoint(max_evaluations=4, stop="absolute")
    deq = pg.DEQ(Affine(w), solver, pg.BackpropThroughSolver())
    z0 = 2 * x if w < 1 else x
    z, _ = deq(x, z0=z0)
    assert torch.equal(z, w * z0 + x)
    (slope,) = torch.autograd.grad(z.sum(), deq.cell.w)
    assert slope == z0.sum()


def test_coupled_rows_are_pointed_out_and_solved_together():
    x = torch.tensor([[1.0], [0.0], [0.0], [0.0]], requires_grad=True)
    exact = torch.zeros(4, 1)
    for _ in range(200):
        exact = Chain()(exact, x)
    solver = pg.FixedPoint(max_evaluations=200, tol=1e-9)
    with pytest.warns(UserWarning, match="mixes the samples"):
        wrong, _ = pg.DEQ(Chain(), solver, UPG)(x)
    assert relative_error((wrong.detach(),), (exact.detach(),)) > 0.1
    adjoint = pg.ImplicitGradient(solver=pg.FixedPoint(max_evaluations=200, tol=1e-12))
    ours, solution = pg.DEQ(Chain(), solver, adjoint, coupled=True)(x)
    assert relative_error((ours.detach(),), (exact.detach(),)) < 1e-7
    assert solution.converged.tolist() == [True]
    gradients = [torch.autograd.grad(z[3].sum(), x)[0] for z in (ours, exact)]
    assert relative_error(gradients[:1], gradients[1:]) < 1e-7


def test_coupled_states_may_differ_in_their_first_dimension():
    """Node and edge states of a graph, for example."""

    class Cell(nn.Module):
        def forward(self, state, x):
            nodes, edges = state
            return 0.5 * edges.sum(0) + x, torch.tanh(nodes[:1] + edges[:, :1])

    z0 = (torch.zeros(3, 2), torch.zeros(4, 2))
    z, solution = pg.DEQ(Cell(), SOLVER, UPG, coupled=True)(torch.randn(3, 2) / 9, z0=z0)
    assert [tuple(t.shape) for t in z] == [(3, 2), (4, 2)]
    assert solution.z.shape == (1, 14)


@pytest.mark.parametrize(
    "mixed",
    [lambda z: z.roll(1, 0), lambda z: z.roll(2, 0), lambda z: z[[0, 0, 2, 2, 4, 4, 6, 6]]],
    ids=["next", "second next", "even to odd"],
)
def test_every_pattern_of_mixing_is_found(mixed):
    class Mixing(nn.Module):
        def forward(self, z, x):
            return torch.tanh(0.5 * mixed(z) + x)

    with pytest.warns(UserWarning, match="mixes the samples"):
        pg.DEQ(Mixing(), SOLVER, UPG)(torch.randn(8, 3))


def test_a_nan_graph_makes_its_batch_nan():
    """All nodes are one sample of the solver: no graph may look converged."""
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    layer = ImplicitGraphLayer(2, 3, pg.FixedPoint(), UPG)
    u = torch.randn(4, 2)
    u[3] = torch.nan
    assert layer(u, normalized_adjacency(edges, 4, dtype=u.dtype)).isnan().all()


def test_checkpoints_of_fixed_and_adaptive_damping_serve_each_other():
    fixed = nn.Sequential(pg.DEQ(TanhCell(), SOLVER, UPG))
    layer = pg.DEQ(TanhCell(), SOLVER, pg.UnrolledPhantomGradient(5, "adaptive"))
    adaptive = nn.Sequential(layer)
    adaptive(torch.randn(2, 4))
    radius = float(layer.gradient.damping.radius)
    assert any("gradient_state" in key for key in adaptive.state_dict())
    fixed.load_state_dict(adaptive.state_dict(), strict=True)
    adaptive.load_state_dict(fixed.state_dict(), strict=True)
    assert layer.gradient.damping.radius == radius


def test_half_precision_raises_the_tolerances_it_cannot_reach():
    """In the solve and in the adjoint solve, which would spend their whole budgets."""
    x = torch.randn(3, 4, dtype=torch.float32)
    adjoint = pg.Broyden(max_evaluations=30, tol=1e-6)
    deq = pg.DEQ(
        TanhCell().float(), pg.Broyden(max_evaluations=40), pg.ImplicitGradient(solver=adjoint)
    )
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.warns(UserWarning, match=r"f is computed in torch.bfloat16, .* to it, Broyden"),
    ):
        z, solution = deq(x)
    z.sum().backward()
    assert solution.evaluations.max() < 40
    assert deq.last_adjoint.evaluations.max() < 30
    assert deq.last_adjoint.residual.max() < 4e-3
