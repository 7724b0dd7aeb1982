"""Parametrized weights: shared by a solve and its gradient, and weight norm that can be pickled."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import ParametrizationList

from phantomgrad.nn.dropout import PASS
from phantomgrad.nn.linear import affine


class SharedParametrization(ParametrizationList):
    """A parametrized tensor that is computed once in each pass, per thread and per copy.

    The cache of torch (``parametrize.cached``) is one for all threads and for copies of a module.
    """

    def forward(self) -> Tensor:
        """Return the tensor of the pass, or compute it outside of a pass."""
        shared = PASS.weights.get(id(self))
        return super().forward() if shared is None else shared


def make_shareable(module: nn.Module) -> None:
    """Make the parametrizations of ``module`` shareable; beforehand, as a tracer cannot do it.

    While traced, raise if there is a new one.
    """
    for child in module.modules():
        if isinstance(child, ParametrizationList) and not isinstance(child, SharedParametrization):
            if torch.compiler.is_compiling():
                raise RuntimeError(
                    "a weight of the cell was parametrized (weight norm) after the layer was made: "
                    "call the layer once before it is compiled as one graph"
                )
            child.__class__ = SharedParametrization


@contextmanager
def shared_parametrizations(module: nn.Module) -> Iterator[None]:
    """Compute every parametrized tensor of ``module`` once, with its graph, and share it.

    They are computed on entry, in the autograd mode of the caller, since the first use may be a
    solve without a graph. Modules that a cell uses but does not own compute theirs at each use, and
    so does a ``module`` of which FSDP2 shards a part: it frees the parameters after each forward
    of that part.
    """
    tensors = PASS.weights.copy()
    children = list(module.modules())
    if not any(hasattr(type(child), "unshard") for child in children):
        if not torch.compiler.is_compiling():  # others are computed at each use
            make_shareable(module)
        for child in children:
            if isinstance(child, SharedParametrization) and id(child) not in tensors:
                tensors[id(child)] = child()
    with restored_parametrizations(tensors):
        yield


@contextmanager
def discarded_parametrizations() -> Iterator[None]:
    """Drop what torch's cache, if enabled, stores inside: a solve stores weights off the graph."""
    before = set(parametrize._cache)  # it is not public
    try:
        yield
    finally:
        for key in parametrize._cache.keys() - before:
            del parametrize._cache[key]


@contextmanager
def restored_parametrizations(tensors: dict[int, Tensor]) -> Iterator[None]:
    """Share the tensors of an earlier pass again."""
    outer, PASS.weights = PASS.weights, tensors
    try:
        yield
    finally:
        PASS.weights = outer


def reduce_normed(module: nn.Module, *arguments: Any) -> tuple[Any, ...]:
    """Return the ``__reduce__`` of a module with torch's weight norm, which torch cannot pickle.

    ``arguments`` are those of its constructor without the last one, the device.
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
