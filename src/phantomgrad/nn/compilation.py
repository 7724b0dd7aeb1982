"""Compiled evaluations of a cell where autograd does not record them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from phantomgrad.nn.dropout import VariationalDropout


def in_one_graph() -> bool:
    """Return whether the traced code must be one graph: ``fullgraph=True`` or ``torch.export``."""
    if torch.compiler.is_exporting():
        return True
    from torch._dynamo.symbolic_convert import InstructionTranslator  # slow to import

    # It is not public. Without it, a layer would break every graph.
    return bool(getattr(InstructionTranslator.current_tx(), "one_graph", False))


# What torch.compiler.assume_constant_result does, which imports the compiler.
in_one_graph._dynamo_marked_constant = True  # type: ignore[attr-defined]


class CompiledCalls:
    """Calls a module, compiled where autograd does not record the call and eagerly where it does.

    A compiled backward pass would compute all gradients, those of the weights included, at every
    vector-Jacobian product of an adjoint solve or a Neumann series, and has no second derivatives.
    A call that draws dropout masks is not compiled either, so that the random numbers are those of
    eager mode. The module must keep no other state.
    """

    def __init__(self, module: nn.Module, **options: Any) -> None:
        self.module = module
        self.options = options
        self._compiled = torch.compile(module.__call__, **options)
        self._dropouts = [m for m in module.modules() if isinstance(m, VariationalDropout)]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the module."""
        plain = torch.is_grad_enabled() or torch.compiler.is_compiling()
        if plain or any(dropout.draws for dropout in self._dropouts):
            return self.module(*arguments, **keywords)
        # By default, a compiled call does not notice hooks that a submodule gets later.
        with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
            result = self._compiled(*arguments, **keywords)
        # Copied, since CUDA graphs would overwrite the results.
        return tree_map_only(Tensor, torch.clone, result)
