"""A warning of cells that are not a fixed map during training."""

from __future__ import annotations

import warnings

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def warn_of_changing_modules(cell: nn.Module) -> None:
    """Warn of modules with which ``cell`` has no equilibrium in training mode.

    Torch's dropout draws a mask at each call. Its batch normalisation updates running statistics
    at each call, and couples the samples of a batch, which solvers treat as independent.
    """
    for name, child in cell.named_modules():
        if isinstance(child, _DropoutNd) and child.p > 0:
            remedy = "use phantomgrad.nn.VariationalDropout, which keeps its mask for a whole solve"
        elif isinstance(child, _BatchNorm) and child.track_running_stats:
            remedy = "normalise groups or layers instead, or outside of the cell"
        else:
            continue
        warnings.warn(
            f"{name or 'the cell'} is a {type(child).__name__}, which changes the map at each "
            f"evaluation, so that the cell has no equilibrium in training: {remedy}",
            stacklevel=3,
        )
