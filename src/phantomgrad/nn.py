"""Building blocks of cells, and the pass: weights computed once, dropout masks drawn once.

A *pass* is one forward of a :class:`phantomgrad.DEQ`. Its solve, its gradient and its adjoint solve
evaluate the cell many times, and must see one function.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils.checkpoint import checkpoint

from phantomgrad.checks import check_rate


class Pass:
    """The ``weights`` and dropout ``masks`` of one pass, by the :meth:`key` of their module."""

    def __init__(
        self,
        weights: dict[int, Tensor],
        masks: dict[int, Tensor],
        originals: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.weights = weights
        self.masks = masks
        self._originals = originals  # of modules of copies

    def key(self, module: nn.Module) -> int:
        """Return the ``id`` of a module; for a module of a copied cell, that of its original."""
        return self._originals.get(id(module), id(module))

    def nested(self, weights: dict[int, Tensor]) -> "Pass":
        """Return a pass within this one, with its masks."""
        return Pass(weights, self.masks, self._originals)

    def of_copy(self, module: nn.Module, copy: nn.Module, weights: dict[int, Tensor]) -> "Pass":
        """Return a pass with these masks and other ``weights`` for a ``copy`` of ``module``."""
        pairs = zip(module.modules(), copy.modules(), strict=True)
        originals = {id(new): self.key(old) for old, new in pairs}
        return Pass(weights, self.masks, originals)


class _Current(threading.local):
    def __init__(self) -> None:
        self.value: Pass | None = None


_CURRENT = _Current()


def current_pass() -> Pass | None:
    """Return the pass that this thread is in, if any."""
    return _CURRENT.value


class entered:
    """A context that returns to an earlier pass, for evaluations repeated in a backward pass."""

    def __init__(self, held: Pass | None) -> None:
        self._held = held
        self._outer: list[Pass | None] = []

    def __enter__(self) -> None:
        self._outer.append(_CURRENT.value)
        _CURRENT.value = self._held

    def __exit__(self, *error: object) -> None:
        _CURRENT.value = self._outer.pop()


@contextmanager
def one_pass(*modules: nn.Module) -> Iterator[None]:
    """Inside, parametrized weights of ``modules`` are computed, and dropout masks drawn, only once.

    The weights are computed on entry, in the autograd mode of the caller, since their first use may
    be in a solve that is not recorded. Modules that ``modules`` use but do not own compute their
    weights at each use. So do all if FSDP2 shards a part, since it frees parameters after each
    forward of that part. Passes may be nested, as equilibria may: the masks are then those of the
    outermost pass, whose map would otherwise change between evaluations.
    """
    outer = _CURRENT.value
    current = Pass({}, {}) if outer is None else outer.nested(outer.weights.copy())
    children = [child for module in modules for child in module.modules()]
    if not any(map(_is_sharded, modules)):
        for module in modules:
            share_weights(module)
        for child in children:
            key = current.key(child)
            if isinstance(child, _SharedParametrization) and key not in current.weights:
                current.weights[key] = child()
    with entered(current):
        yield


def _is_sharded(module: nn.Module) -> bool:
    """Return whether FSDP2 shards ``module`` or a part of it."""
    return any(hasattr(type(child), "unshard") for child in module.modules())


class _SharedParametrization(ParametrizationList):
    """A parametrized tensor that is computed once in each pass, per thread and per copy.

    The cache of torch (``parametrize.cached``) is shared by all threads and all copies of a module.
    """

    def forward(self) -> Tensor:
        """Return the tensor of the pass, or compute it outside of a pass."""
        current = _CURRENT.value
        shared = None if current is None else current.weights.get(current.key(self))
        return super().forward() if shared is None else shared


def share_weights(module: nn.Module) -> None:
    """Make parametrized weights of ``module`` (weight norm, ...) those that a pass computes once.

    Call before tracing: while compiling this does nothing, and a weight that was not prepared is
    computed at each use in the graph.
    """
    if torch.compiler.is_compiling():
        return
    for child in module.modules():
        if type(child) is ParametrizationList:
            child.__class__ = _SharedParametrization


class VariationalDropout(nn.Module):
    r"""Dropout with one mask per pass, shared by all evaluations of the map.

    With a new mask at each evaluation, ``f`` would have no equilibrium. The mask is drawn at the
    first call in a pass (a forward of :class:`phantomgrad.DEQ`, or :func:`one_pass`) and kept
    until the pass ends (Gal and Ghahramani, 2016). Outside of a pass each call draws a new mask. In
    evaluation mode this module is the identity.

    Args:
        p: probability of dropping an entry, in [0, 1).
        shared_dims: dimensions along which entries are dropped together, for example ``(2, 3)``
            for whole channels of ``(B, C, H, W)``; negative ones count from the last.
    """

    def __init__(self, p: float, shared_dims: tuple[int, ...] = ()) -> None:
        super().__init__()
        check_rate("p", p)
        self.p = p
        self.shared_dims = shared_dims

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with the mask of this pass applied, scaled by ``1 / (1 - p)``."""
        current = _CURRENT.value
        # A backward pass repeats evaluations with their mask, whatever the mode is by then.
        mask = None if current is None else current.masks.get(current.key(self))
        if mask is None and (not self.training or self.p == 0):
            return x
        shape = self._mask_shape(x)
        if mask is None:
            mask = x.new_empty(shape).bernoulli_(1 - self.p) / (1 - self.p)
            if current is not None:
                current.masks[current.key(self)] = mask
        if mask.shape != shape:
            raise ValueError(
                f"VariationalDropout keeps one mask, of shape {tuple(mask.shape)}, for a whole "
                f"pass, got an input of shape {tuple(x.shape)}: use one module for each shape"
            )
        return x * mask

    def _mask_shape(self, x: Tensor) -> torch.Size:
        if not all(-x.dim() <= d < x.dim() for d in self.shared_dims):
            raise ValueError(
                f"shared_dims must be dimensions of the input, got {self.shared_dims} "
                f"for an input of shape {tuple(x.shape)}"
            )
        shared = {d % x.dim() for d in self.shared_dims}
        return torch.Size(1 if d in shared else n for d, n in enumerate(x.shape))

    def extra_repr(self) -> str:
        """Return rate and shared dimensions."""
        return f"p={self.p}, shared_dims={self.shared_dims}"


def draws_masks(module: nn.Module) -> bool:
    """Return whether the next call of ``module`` draws a dropout mask."""
    current = _CURRENT.value
    known = {} if current is None else current.masks
    dropouts = (m for m in module.modules() if isinstance(m, VariationalDropout))
    return any(m.training and m.p > 0 and id(m) not in known for m in dropouts)


def recomputed(part: Callable[..., Any], *arguments: Any) -> Any:
    """Call a part of a cell, and keep only its arguments for the backward pass.

    Each backward pass, and each vector-Jacobian product of an adjoint solve, calls ``part`` again
    (Chen et al., 2016), with the weights and masks of its pass, which ``torch.utils.checkpoint``
    alone would not find. ``part`` must not draw other random numbers.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return part(*arguments)
    held = _CURRENT.value
    return checkpoint(
        part,
        *arguments,
        use_reentrant=False,
        preserve_rng_state=held is None,  # else the pass holds the masks
        context_fn=lambda: (entered(held), entered(held)),
    )


class NormedLinear(nn.Linear):
    r"""A linear layer with weight norm: its rows are :math:`g \, v / \|v\|`, each with a gain g.

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
        return F.linear(x, self.weight, self.bias)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_normed(self, self.in_features, self.out_features, self.bias is not None)


class NormedConv2d(nn.Conv2d):
    r"""A convolution with weight norm: :math:`g \, v / \|v\|` in each channel, without bias."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, device: Any = None
    ) -> None:
        padding = kernel_size // 2
        super().__init__(
            in_channels, out_channels, kernel_size, padding=padding, bias=False, device=device
        )
        weight_norm(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_normed(self, self.in_channels, self.out_channels, self.kernel_size[0])


def reduce_normed(module: nn.Module, *arguments: Any) -> tuple[Any, ...]:
    """Return the ``__reduce__`` of a module with torch's weight norm, which torch cannot pickle.

    ``arguments`` are those of its constructor without the last one, the device.
    """
    make = parametrize.type_before_parametrizations(module)
    # On the meta device, since the state brings the parameters: no memory, no random numbers.
    state = module.__dict__.copy()
    del state["_load_state_dict_pre_hooks"]  # torch's own; it cannot be pickled and is made anew
    return make, (*arguments, "meta"), state
