"""A cell as a map of its state alone, which knows the tensors that it closes over.

:func:`pure_map` makes them arguments, for transforms and compiled graphs.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from phantomgrad.gradients.functional import PureMap
from phantomgrad.nn.dropout import PASS, VariationalDropout
from phantomgrad.nn.packing import Packing
from phantomgrad.nn.parametrizations import restored_parametrizations
from phantomgrad.nn.recomputation import PassState
from phantomgrad.solvers import Map
from phantomgrad.solvers.context import transformed
from phantomgrad.solvers.maps import autocast_settings


@dataclass(frozen=True)
class Closure:
    """The map ``f(z) = call(z, *inputs, **keywords)`` of one tensor, ``z`` packed by ``packing``.

    ``module`` holds the shared weights and the dropout masks of the call. Entries of the state that
    are ``padding`` are zero in argument and result, so they count in no residual, no product of two
    states and no vector-Jacobian product, whatever the solver or the gradient.
    """

    module: nn.Module
    call: Callable[..., Any]
    inputs: Sequence[Any]
    keywords: Mapping[str, Any]
    packing: Packing | None
    padding: Tensor | None = None  # boolean, broadcast to z

    def __call__(self, z: Tensor) -> Tensor:
        """Return the next state."""
        z = self.unpadded(z)
        if self.packing is None:
            return self.unpadded(self.call(z, *self.inputs, **self.keywords))
        fz = self.call(self.packing.unpack(z), *self.inputs, **self.keywords)
        return self.unpadded(self.packing.pack(fz))

    @property
    def integers(self) -> Tensor | None:
        """Where a packed state has integers, ``(D,)``."""
        return None if self.packing is None else self.packing.integers

    def unpadded(self, z: Tensor) -> Tensor:
        """Return ``z`` with zeros where it is padding."""
        return z if self.padding is None else z.masked_fill(self.padding, 0)

    def detached(self) -> tuple[list[Tensor], list[Tensor], Map]:
        """Return tensors that require a gradient, leaf copies of them, and the map of the copies.

        The tensors are inputs and the shared weights of the present pass; parameters of the module
        are not copied. The map can be called at any time, also in the backward pass and in another
        thread: it always uses the dropout masks of its first evaluation.
        """
        tensors, copies = list[Tensor](), list[Tensor]()

        def copied(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.requires_grad:
                return value
            tensors.append(value)
            copies.append(value.detach().requires_grad_())
            return copies[-1]

        inputs, keywords = tree_map(copied, (tuple(self.inputs), dict(self.keywords)))
        f = replace(self, inputs=inputs, keywords=keywords)
        state = PassState(self.module, tree_map(copied, PASS.weights))

        def repeated(z: Tensor) -> Tensor:
            with state:
                return f(z)

        return tensors, copies, repeated


def pure_map(f: Closure, device: torch.device) -> Map:
    """Return ``f``, as a :class:`PureMap` in a transform of ``torch.func`` or a compiled graph.

    Its tensors are the parameters, buffers, shared weights, dropout masks and inputs of this pass,
    of which it keeps the autocast of ``device`` as well.
    """
    if not (transformed() or torch.compiler.is_compiling()):
        return f
    cell = f.module
    dropouts = [m for m in cell.modules() if isinstance(m, VariationalDropout)]
    weights = dict(cell.named_parameters()) | dict(cell.named_buffers())
    masks = [dropout.mask for dropout in dropouts]
    autocast = autocast_settings(device.type)
    held = weights, PASS.weights, masks, tuple(f.inputs), dict(f.keywords), f.padding
    leaves, structure = tree_flatten(held)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def pure(z: Tensor, *tensors: Tensor) -> Tensor:
        filled = list(constants)
        for i, tensor in zip(places, tensors, strict=True):
            filled[i] = tensor
        weights, shared, masks, inputs, keywords, padding = tree_unflatten(filled, structure)

        def call(*inputs: Any, **keywords: Any) -> Any:
            return functional_call(cell, weights, inputs, keywords)

        with ExitStack() as stack, torch.autocast(**autocast):
            stack.enter_context(restored_parametrizations(shared))
            for dropout, mask in zip(dropouts, masks, strict=True):
                stack.enter_context(dropout.held(mask))
            return Closure(cell, call, inputs, keywords, f.packing, padding)(z)

    nested = any(hasattr(m, "close_over") for m in cell.modules())  # a DEQ, not to be imported here
    return PureMap(f, pure, tuple(leaves[i] for i in places), nested)
