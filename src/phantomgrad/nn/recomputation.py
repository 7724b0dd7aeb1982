"""Activation checkpointing inside a cell, with the weights and masks of the forward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from phantomgrad.nn.dropout import VariationalDropout
from phantomgrad.nn.parametrizations import cached_parametrizations, restored_parametrizations


def recomputed(
    part: nn.Module | Callable[..., Any], *arguments: Any, within: nn.Module | None = None
) -> Any:
    """Call a part of a cell and keep only its arguments for the backward pass.

    Each backward pass, and each vector-Jacobian product of an adjoint solve, calls it again (Chen
    et al., 2016), with the shared weights and the :class:`VariationalDropout` masks of its own
    forward pass. ``torch.utils.checkpoint`` alone would find those of a later pass, or none.
    ``part`` must not draw other random numbers. Inside ``torch.compile`` it is called directly.
    ``within`` is the module that holds its weights and masks, by default ``part`` itself.
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


class _Pass:
    """The shared weights and the masks of one forward pass."""

    def __init__(self, module: nn.Module) -> None:
        self._weights = cached_parametrizations()
        self._dropouts = [m for m in module.modules() if isinstance(m, VariationalDropout)]
        self._masks: list[Tensor | None] = []

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of the first call and of all later ones."""
        return self._recording(), _Reentered(self._restoring)

    @contextmanager
    def _recording(self) -> Iterator[None]:
        yield
        self._masks = [dropout.mask for dropout in self._dropouts]

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        with ExitStack() as stack:
            for dropout, mask in zip(self._dropouts, self._masks, strict=True):
                stack.enter_context(dropout.held(mask))
            stack.enter_context(restored_parametrizations(self._weights))
            yield


class _Reentered(AbstractContextManager[None]):
    """A context manager created again each time it is entered, once per backward pass."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make = make
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._entered.append(self._make())
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.pop().__exit__(*error)
