"""Compiled evaluations of a cell."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from phantomgrad.jacobian import is_linearizing
from phantomgrad.nn import current_pass, draws_masks


class CompiledCalls:
    """Calls a module, compiled in a pass of its layer and eagerly elsewhere.

    Some calls of a pass run eagerly, too: those that draw dropout masks, with the random numbers of
    eager mode; those of a module with hooks, which a compiled call would not notice; and those of a
    linearization, since a compiled backward pass has no second derivatives, and computes the
    gradients of all weights at every vector-Jacobian product. With ``batch``, states with another
    number of samples run eagerly instead of being compiled once more. The module must keep no other
    state.
    """

    def __init__(self, module: nn.Module, batch: int | None = None, **options: Any) -> None:
        self.module, self.batch, self.options = module, batch, options
        self._compiled = torch.compile(module.__call__, **options)

    def __call__(self, state: Any, *arguments: Any, **keywords: Any) -> Any:
        """Call the module."""
        if self._runs_eagerly(state):
            return self.module(state, *arguments, **keywords)
        # Copies, since CUDA graphs would overwrite the results at the next call.
        return tree_map(Tensor.clone, self._compiled(state, *arguments, **keywords))

    def _runs_eagerly(self, state: Any) -> bool:
        return (
            torch.compiler.is_compiling()
            or current_pass() is None
            or is_linearizing()
            or self.batch not in (None, len(tree_leaves(state)[0]))
            or any(m._forward_hooks or m._forward_pre_hooks for m in self.module.modules())
            or draws_masks(self.module)
        )
