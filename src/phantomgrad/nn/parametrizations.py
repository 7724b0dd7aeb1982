"""Parametrized weights: shared by a solve and its gradient, and weight norm that can be pickled."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad.nn.linear import affine


@contextmanager
def shared_parametrizations(module: nn.Module) -> Iterator[None]:
    """Compute every parametrized tensor of ``module`` once, with its graph, and share it.

    Inside the context, weight norm, spectral norm and the like cost nothing per evaluation, and
    all evaluations use the same weights (a spectral norm in training changes them at each access).
    The tensors are computed on entry, in the autograd mode of the caller: the first use may be a
    solve without a graph, and the cache would then hold weights without one.
    """
    with parametrize.cached():
        for child in module.modules():
            if parametrize.is_parametrized(child):
                for name in child.parametrizations:  # type: ignore[union-attr]
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


def reduce_normed(module: nn.Module, *arguments: Any) -> tuple[Any, ...]:
    """Return the ``__reduce__`` of a module with torch's weight norm, which torch cannot pickle.

    ``arguments`` are those of its constructor without the last one, the device. A subclass with
    others needs a ``__reduce__`` of its own.
    """
    make = parametrize.type_before_parametrizations(module)
    # On the meta device, since the state brings the parameters: no memory, no random numbers.
    state = module.__dict__.copy()
    del state["_load_state_dict_pre_hooks"]  # torch's own; it cannot be pickled and is made anew
    return make, (*arguments, "meta"), state


class NormedLinear(nn.Linear):
    r"""A linear map whose rows are :math:`g \, v / \|v\|`, each with a gain g.

    v is drawn as in :class:`torch.nn.Linear` and g is its norm; the bias starts at zero.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias, device)
        if bias:
            nn.init.zeros_(self.bias)
        weight_norm(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., out_features)`` of ``(..., in_features)``."""
        return affine(x, self.weight, self.bias)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_normed(self, self.in_features, self.out_features, self.bias is not None)
