"""Compiled evaluations of a cell."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from phantomgrad.jacobian import is_linearizing
from phantomgrad.nn import current_pass, draws_masks


class CompiledCalls:
    """Calls a module, compiled in the evaluations of a pass and eagerly elsewhere.

    Evaluations that autograd records are compiled only if ``recorded``, and those of a
    linearization never. Calls that draw dropout masks run eagerly, with the random numbers of eager
    mode, and so do modules with hooks, which a compiled call would not notice, and states of
    another number of samples than ``batch``, if it is given, which would be compiled once more. The
    module must keep no other state.
    """

    def __init__(
        self, module: nn.Module, batch: int | None, recorded: bool, options: dict[str, Any]
    ) -> None:
        self._module, self._batch, self._recorded = module, batch, recorded
        self._compiled = torch.compile(module.__call__, **options)

    def __call__(self, state: Any, *arguments: Any, **keywords: Any) -> Any:
        """Call the module."""
        if self._runs_eagerly(state):
            return self._module(state, *arguments, **keywords)
        return tree_map(_kept, self._compiled(state, *arguments, **keywords))

    def _runs_eagerly(self, state: Any) -> bool:
        return (
            torch.compiler.is_compiling()
            or current_pass() is None
            or is_linearizing()
            or (torch.is_grad_enabled() and not self._recorded)
            or self._batch not in (None, len(tree_leaves(state)[0]))
            or any(m._forward_hooks or m._forward_pre_hooks for m in self._module.modules())
            or draws_masks(self._module)
        )


def _kept(result: Tensor) -> Tensor:
    """Copy a result that CUDA graphs would overwrite at the next call."""
    return result.clone() if result.is_cuda else result
