"""Parametrized weights, computed once for a solve and its gradient."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.utils import parametrize


@contextmanager
def shared_parametrizations(module: nn.Module) -> Iterator[None]:
    """Compute every parametrized tensor of ``module`` once, with its graph, and share it.

    Inside the context, weight norm, spectral norm and the like cost nothing per evaluation, and
    all evaluations use the same weights (a spectral norm in training changes them at each access).
    The tensors are computed on entry, in the autograd mode of the caller: the first use may be a
    solve without a graph, and the cache would then hold weights without one.
    """
    with parametrize.cached():
        for child, name in _parametrized(module):
            getattr(child, name)
        yield


@contextmanager
def discarded_parametrizations() -> Iterator[None]:
    """Forget the parametrized tensors that are first used inside of the context.

    Modules that a cell uses but does not own (a tied decoder, a module among the inputs) are not
    known to :func:`shared_parametrizations`. A solve without a graph would leave their weights in
    torch's cache, and the gradient would never reach them.
    """
    before = set(parametrize._cache)
    try:
        yield
    finally:
        for key in parametrize._cache.keys() - before:
            del parametrize._cache[key]


def cached_parametrizations() -> dict[tuple[int, str], Tensor]:
    """Return the tensors that are shared at the moment, by torch's keys of its cache."""
    return {key: t for key, t in parametrize._cache.items() if t is not None}


@contextmanager
def restored_parametrizations(cached: Mapping[tuple[int, str], Tensor]) -> Iterator[None]:
    """Share the tensors of an earlier pass again."""
    if not cached:
        yield
        return
    with parametrize.cached():  # torch has no public access to its cache
        others = {key: parametrize._cache.get(key) for key in cached}
        parametrize._cache.update(cached)
        try:
            yield
        finally:
            parametrize._cache.update(others)


def _parametrized(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for child in module.modules():
        if parametrize.is_parametrized(child):
            for name in child.parametrizations:  # type: ignore[union-attr]
                yield child, name
