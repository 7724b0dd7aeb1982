"""Computing again in the backward pass, with the weights and masks of the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from phantomgrad.nn.dropout import VariationalDropout
from phantomgrad.nn.parametrizations import restored_parametrizations, shared_now

Part = nn.Module | Callable[..., Any]


def recomputed(part: Part, *arguments: Any, within: nn.Module | None = None) -> Any:
    """Call a part of a cell, and keep its arguments alone for the backward pass.

    Each backward pass calls it again, and so does each vector-Jacobian product of an adjoint solve
    (Chen et al., 2016). By then other masks of :class:`VariationalDropout` may have been drawn, and
    weights that a pass shares are gone: ``torch.utils.checkpoint`` on its own would give the
    gradient of another pass, or fail. Here each pass meets its own. Nothing else may be random.
    Inside of ``torch.compile`` it is an ordinary call.

    Args:
        part: a module, or a function.
        arguments: of it.
        within: the module that holds its weights and masks; by default ``part``.

    Raises:
        TypeError: ``part`` is no module, and ``within`` not given.
    """
    owner = part if within is None else within
    if not isinstance(owner, nn.Module):
        raise TypeError(f"within must be given where part is no module but a {type(part).__name__}")
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():  # nothing is kept; or by torch
        return part(*arguments)
    return checkpoint(
        part,
        *arguments,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=_Kept(owner).contexts,
    )


class _Kept:
    """What one call has met: the weights it shared, and the masks it has drawn or found."""

    def __init__(self, module: nn.Module) -> None:
        self._weights = shared_now(module)
        self._dropouts = [m for m in module.modules() if isinstance(m, VariationalDropout)]
        self._masks: list[Tensor | None] = []

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return what the first call is made in, and every later one."""
        return self._keeping(), _EachTime(self._restored)

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        yield
        self._masks = [dropout.mask for dropout in self._dropouts]

    @contextmanager
    def _restored(self) -> Iterator[None]:
        with ExitStack() as stack:
            for dropout, mask in zip(self._dropouts, self._masks, strict=True):
                stack.enter_context(dropout.held(mask))
            stack.enter_context(restored_parametrizations(self._weights))
            yield


class _EachTime(AbstractContextManager[None]):
    """A context that is entered as often as there are backward passes, each time anew."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make = make
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._entered.append(self._make())
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.pop().__exit__(*error)
