"""Parametrized weights, computed once for a solve and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.utils import parametrize


@contextmanager
def shared_parametrizations(module: nn.Module) -> Iterator[None]:
    """Compute every parametrized tensor of ``module`` once, with its graph, and share it.

    Inside, weight norm, spectral norm and the like cost nothing per evaluation, and all
    evaluations see the same weights (a spectral norm draws new ones at each access while
    training). The tensors are computed at the door, under the caller's autograd mode: left to the
    first use, that would be a solve without graph, and the cache would lose it.
    """
    with parametrize.cached():
        for child in module.modules():
            if parametrize.is_parametrized(child):
                for name in child.parametrizations:  # type: ignore[union-attr]
                    getattr(child, name)
        yield
