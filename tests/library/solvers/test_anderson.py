"""Anderson acceleration: finite termination, documented iterates, singular systems."""

import pytest
import torch
from problems import Affine, Counted, TanhCell

from phantomgrad import Anderson, FixedPoint


@pytest.mark.parametrize("size", [1, 3, 6])
@pytest.mark.parametrize("damping", [0.5, 1.0])
@pytest.mark.parametrize("options", [{"regularization": 1e-14}, {}], ids=["none", "default"])
def test_affine_maps_end_within_d_plus_two_evaluations(size, damping, options):
    """The default regularization costs one more."""
    affine, budget = Affine.random(batch=4, size=size, norm=0.9), size + 2 + (not options)
    solver = Anderson(max_evaluations=budget, tol=1e-8, memory=size + 1, damping=damping, **options)
    solution = solver.solve(affine, affine.zeros)
    assert solution.converged.all()
    torch.testing.assert_close(solution.z, affine.equilibrium(), rtol=0, atol=1e-6)


def dense_anderson_step(z, fz, damping, mu):
    """The next iterate of one sample from its history ``(n, D)``, by the bordered system."""
    g = fz - z
    n = len(z)
    system = torch.zeros(n + 1, n + 1)
    system[0, 1:] = system[1:, 0] = 1
    system[1:, 1:] = g @ g.mT + mu * torch.diag(g.square().sum(dim=1))
    alpha = torch.linalg.solve(system, torch.eye(n + 1)[0])[1:]
    return alpha @ (z + damping * g)


@pytest.mark.parametrize("memory", [1, 2, 3, 5])
@pytest.mark.parametrize("damping", [0.6, 1.0])
def test_iterates_solve_the_documented_problem(memory, damping):
    cell, x = TanhCell(size=6), torch.randn(6)
    f = lambda z: cell(z, x)  # noqa: E731
    counted, mu = Counted(f), 1e-4
    Anderson(max_evaluations=9, tol=0, memory=memory, damping=damping, regularization=mu).solve(
        counted, torch.randn(1, 6)
    )
    visited = torch.cat(counted.points)
    images = f(visited).detach()
    for t in range(1, 9):
        window = slice(max(0, t - memory), t)
        expected = dense_anderson_step(visited[window], images[window], damping, mu)
        torch.testing.assert_close(visited[t], expected, rtol=0, atol=1e-9)


SINGULAR = {
    "constant": torch.ones_like,
    "identity": torch.clone,
    "zero": torch.zeros_like,
    "translation: all g equal": lambda z: z + 1,
    "two-cycle: iterates repeat": lambda z: 1 - z,
}


@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("regularization", [0.0, 1e-8])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_a_singular_system_gives_a_finite_state(name, regularization, start):
    solver = Anderson(max_evaluations=12, tol=0, memory=4, regularization=regularization)
    z0 = torch.full((2, 3), start)
    solution = solver.solve(SINGULAR[name], z0)
    assert solution.z.isfinite().all()
    best = FixedPoint(max_evaluations=2, tol=0).solve(SINGULAR[name], z0).residual
    assert (solution.residual <= best).all()


def test_the_fallback_is_the_step_from_the_newest_iterate():
    """On ``z + 1`` all g are equal: the method becomes a fixed-point iteration."""
    f = Counted(SINGULAR["translation: all g equal"])
    Anderson(max_evaluations=6, tol=0, memory=3, regularization=0).solve(f, torch.zeros(1, 1))
    assert torch.cat(f.points).flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_singular_sample_does_not_change_its_neighbour():
    affine = Affine.random(batch=1, size=3)
    mixed = lambda z: torch.cat([affine(z[:1]), z[1:].clone()])  # noqa: E731
    solver = Anderson(max_evaluations=10, tol=0, memory=4, regularization=0)
    both = solver.solve(mixed, torch.ones(2, 3))
    alone = solver.solve(affine, torch.ones(1, 3))
    torch.testing.assert_close(both.z[:1], alone.z, rtol=1e-12, atol=1e-12)
    assert torch.equal(both.z[1], torch.ones(3))
