"""Activation checkpointing inside a cell, with the weights and masks of the forward pass."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from phantomgrad.nn.dropout import PASS, VariationalDropout
from phantomgrad.nn.parametrizations import restored_parametrizations


def recomputed(
    part: nn.Module | Callable[..., Any], *arguments: Any, within: nn.Module | None = None
) -> Any:
    """Call a part of a cell and keep only its arguments for the backward pass.

    Each backward pass, and each vector-Jacobian product of an adjoint solve, calls it again (Chen
    et al., 2016), with the shared weights and the :class:`VariationalDropout` masks of its own
    forward pass, which ``torch.utils.checkpoint`` alone would not find. ``part`` must not draw
    other random numbers. ``within`` is the module that holds its weights and masks, by default
    ``part`` itself.
    """
    owner = part if within is None else within
    if not isinstance(owner, nn.Module):
        raise TypeError(f"within must be given if part is not a module, got {type(part).__name__}")
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return part(*arguments)
    state = PassState(owner)
    return checkpoint(
        part,
        *arguments,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (state, state),
    )


class PassState(AbstractContextManager[None]):
    """The shared weights and the masks of one forward pass, for repeated evaluations.

    Inside the context, the masks that have been drawn by its first use are held. ``weights``
    replace the shared weights of the present pass.
    """

    def __init__(self, module: nn.Module, weights: dict[int, Tensor] | None = None) -> None:
        self._weights = PASS.weights if weights is None else weights
        self._dropouts = [m for m in module.modules() if isinstance(m, VariationalDropout)]
        self._masks: dict[VariationalDropout, Tensor | None] = {}
        self._entered: list[ExitStack] = []

    def __enter__(self) -> None:
        stack = ExitStack()
        for dropout, mask in self._masks.items():
            stack.enter_context(dropout.held(mask))
        stack.enter_context(restored_parametrizations(self._weights))
        self._entered.append(stack)

    def __exit__(self, *error: Any) -> bool | None:
        for dropout in self._dropouts:
            if dropout.mask is not None or not dropout.training:
                self._masks.setdefault(dropout, dropout.mask)
        return self._entered.pop().__exit__(*error)
