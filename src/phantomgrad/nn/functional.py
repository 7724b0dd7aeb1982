"""The map of a layer with everything it closes over as arguments."""

from contextlib import ExitStack

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from phantomgrad.gradients.functional import PureMap
from phantomgrad.nn.closure import Closure
from phantomgrad.nn.dropout import VariationalDropout
from phantomgrad.nn.parametrizations import PASS, restored_parametrizations
from phantomgrad.solvers import Map
from phantomgrad.solvers.accelerators import transformed


def pure_map(f: Closure) -> Map:
    """Return ``f``; when transformed or compiled, with the tensors of this pass it closes over."""
    if not (transformed() or torch.compiler.is_compiling()):
        return f
    cell, packing = f.module, f.packing
    weights = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    dropouts = [m for m in cell.modules() if isinstance(m, VariationalDropout)]
    masks = {i: m.mask for i, m in enumerate(dropouts)}
    leaves, structure = tree_flatten(
        (weights, PASS.tensors, masks, tuple(f.inputs), dict(f.keywords))
    )
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def pure(z: Tensor, *tensors: Tensor) -> Tensor:
        filled = list(constants)
        for i, tensor in zip(where, tensors, strict=True):
            filled[i] = tensor
        weights, shared, masks, inputs, keywords = tree_unflatten(filled, structure)
        with ExitStack() as stack:
            stack.enter_context(restored_parametrizations(shared))
            for i, dropout in enumerate(dropouts):
                stack.enter_context(dropout.held(masks[i]))
            state = z if packing is None else packing.unpack(z)
            out = torch.func.functional_call(cell, weights, (state, *inputs), keywords)
            return out if packing is None else packing.pack(out)

    return PureMap(f, pure, tuple(leaves[i] for i in where))
