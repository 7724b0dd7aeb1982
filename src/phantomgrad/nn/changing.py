"""Modules that make another map of a cell at every evaluation."""

from __future__ import annotations

import warnings

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def warn_of_changing(cell: nn.Module) -> None:
    """Warn of modules with which ``cell`` has no equilibrium while it is trained.

    Torch's dropout draws a mask at each call; its batch normalisation moves running statistics at
    each, and makes every sample depend on the others, which a solver takes for independent.
    """
    for name, child in cell.named_modules():
        remedy = _remedy(child)
        if remedy:
            warnings.warn(
                f"{name or 'the cell'} is a {type(child).__name__}, with which the cell is another "
                f"map at each evaluation and has no equilibrium in training: {remedy}",
                stacklevel=3,
            )


def _remedy(module: nn.Module) -> str | None:
    if isinstance(module, _DropoutNd) and module.p > 0:
        return "phantomgrad.nn.VariationalDropout keeps its mask for a whole solve"
    if isinstance(module, _BatchNorm) and module.track_running_stats:
        return "normalise groups or layers instead, or before and behind the equilibrium"
    return None
