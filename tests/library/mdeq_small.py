"""A small MDEQ of three scales."""

from __future__ import annotations

from typing import Any

import torch

from phantomgrad import (
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    Solver,
    UnrolledPhantomGradient,
)
from phantomgrad.models import MDEQ

TIGHT = FixedPoint(max_evaluations=400, tol=1e-15)
IMPLICIT = ImplicitGradient(solver=TIGHT)
PHANTOM = UnrolledPhantomGradient(3, 0.5)


def small(gradient: GradientEstimator = PHANTOM, solver: Solver = TIGHT, **settings: Any) -> MDEQ:
    """A contractive model: the states vary little around the mean that normalisation divides by."""
    sizes = {
        "channels": (4, 6, 8),
        "head_channels": (2, 3, 4),
        "features": 5,
        "expansion": 2,
        "groups": 2,
        **settings,
    }
    model = MDEQ(3, 4, solver, gradient, **sizes)
    with torch.no_grad():
        for post in model.deq.cell.post:
            post[-1].weight.mul_(0.03)
            post[-1].bias.normal_()
    return model
