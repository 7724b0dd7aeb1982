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
    inverses: list[Tensor] = field(default_factory=list)

    def points(self, z0, evaluations):
        """Return the points ``(D,)`` at which f is evaluated."""
        z, g, steps, points = z0, self._g(z0), 0, [z0]
        h = -torch.eye(len(z0))
        self.inverses = [h]
        while len(points) < evaluations:
            s = -h @ g
            before, z, steps = g, z + s, steps + 1
            g = self._g(z)
            points.append(z)
            if steps <= self.memory:
                h = self._updated(h, s, g - before)
            else:
                h, steps = -torch.eye(len(z0)), 0
            self.inverses.append(h)
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


@pytest.mark.parametrize("memory", [None, 1, 2, 5])
@pytest.mark.parametrize("norm", [0.9, 1.5])
def test_iterates_are_those_of_the_dense_method(memory, norm):
    """Restarts, which take a plain step, are among the cases."""
    f, z0 = Stiff(6, norm), torch.randn(3, 6)
    points = evaluated_points(Broyden(max_evaluations=14, tol=0, memory=memory), f, z0)
    expected = [torch.stack(DenseBroyden(f, memory or 1000).points(z, 14)) for z in z0]
    torch.testing.assert_close(points, torch.stack(expected, dim=1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("slope", [0.0, 1e-10])
def test_a_vanishing_denominator_disables_the_update(slope):
    """If ``s^T H y`` is only rounding error, the steps remain plain ones."""
    solver = Broyden(max_evaluations=4, tol=0)
    found = evaluated_points(solver, lambda z: z + 1.0 + slope * z, torch.zeros(1, 1))
    assert found.flatten().tolist() == pytest.approx([0.0, 1.0, 2.0, 3.0], abs=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("norm", [0.9, 3.0])
def test_an_affine_map_takes_at_most_two_d_steps(size, norm):
    """The method terminates after 2D steps in D dimensions, even for an expansion (Gay, 1979)."""
    affine = Affine.random(batch=4, size=size, norm=norm)
    solver = Broyden(max_evaluations=2 * size + 1, tol=1e-7)
    solution = solver.solve(affine, affine.zeros)
    assert solution.converged.all()
    torch.testing.assert_close(solution.z, affine.equilibrium(), rtol=1e-5, atol=1e-5)
