"""Damped fixed-point iteration."""

from __future__ import annotations

import pytest
import torch
from problems import Affine, Counted

from phantomgrad import FixedPoint


@pytest.mark.parametrize("damping", [0.3, 0.5, 1.0])
def test_iterates_are_the_damped_ones(damping: float) -> None:
    """``z_{t+1} = damping f(z_t) + (1 - damping) z_t``, from the start on."""
    affine = Counted(Affine.random())
    FixedPoint(max_evaluations=7, tol=0, damping=damping).solve(affine, torch.zeros(3, 5))
    z = torch.zeros(3, 5)
    for visited in affine.points:
        torch.testing.assert_close(visited, z, rtol=1e-13, atol=1e-13)
        z = damping * affine.f(z) + (1 - damping) * z


def test_damping_solves_a_map_on_which_picard_diverges() -> None:
    """``f(z) = 1 - 2 z`` diverges undamped and converges with damping 1/2, to the same 1/3."""
    f = lambda z: 1 - 2 * z  # noqa: E731
    picard = FixedPoint(max_evaluations=60).solve(f, torch.zeros(1, 1))
    damped = FixedPoint(max_evaluations=60, tol=1e-12, damping=0.5).solve(f, torch.zeros(1, 1))
    assert not picard.converged.item()
    assert damped.converged.item()
    assert damped.z.item() == pytest.approx(1 / 3, abs=1e-11)
