"""The map of a layer with everything that it closes over as arguments."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_unflatten

from phantomgrad.gradients.functional import PureMap
from phantomgrad.nn.closure import Closure
from phantomgrad.nn.dropout import VariationalDropout
from phantomgrad.nn.parametrizations import SHARED, restored_parametrizations
from phantomgrad.solvers import Map
from phantomgrad.solvers.context import transformed
from phantomgrad.solvers.maps import autocast_settings


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
    held = weights, SHARED.tensors, masks, tuple(f.inputs), dict(f.keywords)
    leaves, structure = tree_flatten(held)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def pure(z: Tensor, *tensors: Tensor) -> Tensor:
        filled = list(constants)
        for i, tensor in zip(places, tensors, strict=True):
            filled[i] = tensor
        weights, shared, masks, inputs, keywords = tree_unflatten(filled, structure)

        def call(*inputs: Any, **keywords: Any) -> Any:
            return functional_call(cell, weights, inputs, keywords)

        with ExitStack() as stack, torch.autocast(**autocast):
            stack.enter_context(restored_parametrizations(shared))
            for dropout, mask in zip(dropouts, masks, strict=True):
                stack.enter_context(dropout.held(mask))
            return Closure(cell, call, inputs, keywords, f.packing)(z)

    nested = any(hasattr(m, "close_over") for m in cell.modules())  # a DEQ, not to be imported here
    return PureMap(f, pure, tuple(leaves[i] for i in places), nested)
