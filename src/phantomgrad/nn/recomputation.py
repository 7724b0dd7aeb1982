"""Activation checkpointing inside a cell, with the weights and masks of the forward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from phantomgrad.nn.dropout import VariationalDropout
from phantomgrad.nn.parametrizations import PASS, restored_parametrizations


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
    return checkpoint(
        part,
        *arguments,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=_Pass(owner).contexts,
    )


class _Pass(AbstractContextManager[None]):
    """Restores the shared weights and the masks of one forward pass, in each backward pass."""

    def __init__(self, module: nn.Module) -> None:
        self._weights = PASS.tensors
        self._dropouts = [m for m in module.modules() if isinstance(m, VariationalDropout)]
        self._masks: list[Tensor | None] = []
        self._entered: list[ExitStack] = []

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of the first call and of all later ones."""
        return self._recording(), self

    @contextmanager
    def _recording(self) -> Iterator[None]:
        yield
        self._masks = [dropout.mask for dropout in self._dropouts]

    def __enter__(self) -> None:
        stack = ExitStack()
        for dropout, mask in zip(self._dropouts, self._masks, strict=True):
            stack.enter_context(dropout.held(mask))
        stack.enter_context(restored_parametrizations(self._weights))
        self._entered.append(stack)

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.pop().__exit__(*error)
