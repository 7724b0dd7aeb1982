"""Parametrized weights, computed once for a solve and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn
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
        for child, name in _parametrized(module):
            getattr(child, name)
        yield


def shared_now(module: nn.Module) -> dict[tuple[int, str], Tensor]:
    """Return the tensors of ``module`` that are shared at the moment; none outside of a pass."""
    if not parametrize._cache_enabled:
        return {}
    return {(id(child), name): getattr(child, name) for child, name in _parametrized(module)}


@contextmanager
def restored_parametrizations(shared: Mapping[tuple[int, str], Tensor]) -> Iterator[None]:
    """Share tensors of an earlier pass again."""
    if not shared:
        yield
        return
    with parametrize.cached():  # torch has no way but its own into what it keeps
        others = {key: parametrize._cache.get(key) for key in shared}
        parametrize._cache.update(shared)
        try:
            yield
        finally:
            parametrize._cache.update(others)


def _parametrized(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for child in module.modules():
        if parametrize.is_parametrized(child):
            for name in child.parametrizations:  # type: ignore[union-attr]
                yield child, name
