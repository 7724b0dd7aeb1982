"""Compiled evaluations of a cell where autograd does not record them."""

from typing import Any

import torch
from torch import Tensor, nn

from phantomgrad.nn import draws_masks


class CompiledCalls:
    """Calls a module, compiled where autograd does not record the call and eagerly where it does.

    A compiled backward pass has no second derivatives, and would compute the gradients of all
    weights at every vector-Jacobian product. Calls that draw dropout masks run eagerly, with the
    random numbers of eager mode, and so do modules with hooks, which a compiled call would not
    notice. The module must keep no other state.
    """

    def __init__(self, module: nn.Module, **options: Any) -> None:
        self.module = module
        self.options = options
        self._compiled = torch.compile(module.__call__, **options)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the module."""
        plain = torch.is_grad_enabled() or torch.compiler.is_compiling()
        if plain or _has_hooks(self.module) or draws_masks(self.module):
            return self.module(*arguments, **keywords)
        return _copied(self._compiled(*arguments, **keywords))


def _has_hooks(module: nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def _copied(states: Any) -> Any:
    """Copy tensors, which CUDA graphs would overwrite at the next call."""
    if isinstance(states, Tensor):
        return states.clone()
    if isinstance(states, dict):
        return type(states)((name, _copied(value)) for name, value in states.items())
    copies = [_copied(value) for value in states]
    return type(states)(*copies) if hasattr(states, "_fields") else type(states)(copies)
