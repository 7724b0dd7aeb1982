"""Broyden's method against a dense reference; finite termination."""

from dataclasses import dataclass, field

import pytest
import torch
from problems import Affine, Counted, Map, contraction
from torch import Tensor

from phantomgrad import Broyden


@dataclass
class DenseBroyden:
    """The documented method for one sample, with H as a matrix, ``inverses`` at its points."""

    f: Map
    memory: int = 1000
    line_search: bool = False
    first_step: float = 1.0
    rejected: int = 0
    inverses: list[Tensor] = field(default_factory=list)

    def points(self, z0, evaluations):
        """Return the points ``(D,)`` at which f is evaluated."""
        size, points = len(z0), [z0]
        h, steps = -torch.eye(size), 0
        self.inverses = [h]
        base, g_base, t = z0, self._g(z0), self.first_step
        while len(points) < evaluations:
            s = -t * h @ g_base
            trial = base + s
            g = self._g(trial)
            points.append(trial)
            steps += 1
            if steps <= self.memory:
                h = self._updated(h, s, g - g_base)
            else:
                h, steps = -torch.eye(size), 0
            self.inverses.append(h)
            accept = not self.line_search or g.norm() <= (1 - 1e-4 * t) * g_base.norm()
            accept = accept or t <= 2**-7
            self.rejected += not accept
            base, g_base, t = (trial, g, 1.0) if accept else (base, g_base, t / 2)
        return points

    def _g(self, z):
        return self.f(z.unsqueeze(0)).squeeze(0) - z

    @staticmethod
    def _updated(h, s, y):
        if abs(s @ h @ y) <= torch.finfo(s.dtype).eps ** 0.5 * (s @ s):
            return h
        return h + torch.outer(s - h @ y, s @ h) / (s @ h @ y)


@dataclass
class Stiff:
    """``tanh(W z + x)``, one W for all samples; not a contraction for a norm above one."""

    size: int
    norm: float
    seed: int = 0

    def __call__(self, z):
        generator = torch.Generator().manual_seed(self.seed + 100)
        x = torch.randn(self.size, generator=generator)
        return torch.tanh(z @ contraction(1, self.size, self.norm, self.seed)[0].mT + x)


def evaluated_points(solver, f, z0):
    """Return the points ``(evaluations, B, D)`` at which the solver evaluated f."""
    counted = Counted(f)
    solver.solve(counted, z0)
    return torch.stack(counted.points)


def both_points(f, z0, **options):
    """The first 14 points of the solver, ``(evaluations, B, D)``, and those of the reference."""
    points = evaluated_points(Broyden(max_evaluations=14, tol=0, **options), f, z0)
    reference = DenseBroyden(f, **{**options, "memory": options["memory"] or 1000})
    dense = [torch.stack(reference.points(z, 14)) for z in z0]
    return points, torch.stack(dense, dim=1), reference


@pytest.mark.parametrize("first_step", [1.0, -1.0, 0.3])
@pytest.mark.parametrize("memory", [None, 1, 2, 5])
@pytest.mark.parametrize("norm", [0.9, 1.5])
def test_iterates_are_those_of_the_dense_method(memory, norm, first_step):
    """Restarts, which take a plain step, are among the cases."""
    f, z0 = Stiff(6, norm), torch.randn(3, 6)
    points, expected, _ = both_points(f, z0, memory=memory, first_step=first_step)
    torch.testing.assert_close(points, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(points[1], z0 + first_step * (f(z0) - z0))


@pytest.mark.parametrize("memory", [None, 1, 2, 5])
@pytest.mark.parametrize(("norm", "seed"), [(2.5, 0), (4.0, 1)])
def test_line_search_follows_the_documented_rule(memory, norm, seed):
    f, z0 = Stiff(5, norm, seed), torch.randn(4, 5)
    points, expected, reference = both_points(f, z0, memory=memory, line_search=True)
    assert reference.rejected >= 2
    torch.testing.assert_close(points, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("slope", [0.0, 1e-10])
@pytest.mark.parametrize(
    ("first_step", "points"), [(1.0, [0.0, 1.0, 2.0, 3.0]), (-1.0, [0.0, -1.0, 0.0, 1.0])]
)
def test_a_vanishing_denominator_disables_the_update(first_step, points, slope):
    """If ``s^T H y`` is only rounding error, the steps remain plain ones."""
    solver = Broyden(max_evaluations=4, tol=0, first_step=first_step)
    found = evaluated_points(solver, lambda z: z + 1.0 + slope * z, torch.zeros(1, 1))
    assert found.flatten().tolist() == pytest.approx(points, abs=1e-9)


def test_rejections_after_convergence_are_not_counted():
    f, z0 = Stiff(5, 4.0, 1), torch.randn(4, 5)
    solver = Broyden(max_evaluations=60, tol=1e-10, line_search=True)
    together = solver.solve(f, z0)
    alone = torch.cat([solver.solve(f, z.unsqueeze(0)).iterations for z in z0])
    assert together.evaluations.unique().numel() > 1
    assert torch.equal(together.iterations, alone)


def test_a_rejected_point_updates_h_and_is_not_an_iteration():
    """On ``g(z) = z + 1`` the first step goes uphill; its secant pair makes the next one exact."""
    solver = Broyden(max_evaluations=6, tol=1e-12, stop="absolute", line_search=True)
    points = evaluated_points(solver, lambda z: 2 * z + 1, torch.zeros(1))
    assert points.flatten().tolist() == [0.0, 1.0, -0.5, -1.0]
    solution = solver.solve(lambda z: 2 * z + 1, torch.zeros(1))
    assert (solution.evaluations.item(), solution.iterations.item()) == (4, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize(("norm", "first_step"), [(0.9, 1.0), (3.0, 1.0), (0.9, -1.0)])
def test_an_affine_map_takes_at_most_two_d_steps(size, norm, first_step):
    """The method terminates after 2D steps in D dimensions, even for an expansion (Gay, 1979)."""
    affine = Affine.random(batch=4, size=size, norm=norm)
    solver = Broyden(max_evaluations=2 * size + 1, tol=1e-7, first_step=first_step)
    solution = solver.solve(affine, affine.zeros)
    assert solution.converged.all()
    torch.testing.assert_close(solution.z, affine.equilibrium(), rtol=1e-5, atol=1e-5)
