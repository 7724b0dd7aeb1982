"""The context of a solve: autograd mode, transforms, tracing, precision and device."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    TransformType,
    get_interpreter_stack,
    get_unwrapped,
    is_functorch_wrapped_tensor,
    unwrap_if_dead,
)
from torch.autograd import forward_ad


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Switch autocast and TF32 off.

    In the products of a solver they would round its iterates: with TF32, Anderson acceleration
    stalls at residuals of 2e-4. A compiled graph cannot hold a change of TF32, and keeps it.
    """
    may_have_tf32 = device.type == "cuda" and not torch.compiler.is_compiling()
    if may_have_tf32 and torch.backends.cuda.matmul.fp32_precision == "tf32":
        return _without_tf32(device)
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def _without_tf32(device: torch.device) -> Iterator[None]:
    onednn: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before: str | None = None
    onednn_before = onednn.fp32_precision
    with suppress(RuntimeError):  # if TF32 was set in another way, torch refuses to read this
        before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before)
        else:
            torch.backends.cuda.matmul.fp32_precision = "tf32"
        onednn.fp32_precision = onednn_before  # set_float32_matmul_precision has changed it too


def traced() -> bool:
    """Return whether the values of tensors cannot be read (while tracing, or in a vmap)."""
    return torch.compiler.is_compiling() or vmapped()


def transformed() -> bool:
    """Return whether a transform of ``torch.func`` or forward-mode autograd is under way."""
    compiling = torch.compiler.is_compiling()
    return not compiling and (forward_ad._current_level >= 0 or bool(transforms()))


def differentiating() -> bool:
    """Return whether derivatives are wanted: ``torch.no_grad`` does not stop forward mode."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return torch.is_grad_enabled()
    return forward_ad._current_level >= 0 and forward_ad._is_fwd_grad_enabled()


def transforms() -> list[Any]:
    """Return the transforms of ``torch.func`` that are under way, the outermost first."""
    compiling = torch.compiler.is_compiling()
    return [] if compiling else list(get_interpreter_stack() or ())


def has_derivative(tensor: Tensor) -> bool:
    """Return whether ``tensor`` has a graph or a tangent, at any level of nested transforms."""
    while True:
        dual: Any = forward_ad.unpack_dual(tensor) if transformed() else None  # type: ignore[no-untyped-call]
        if tensor.requires_grad or (dual and dual.tangent is not None):
            return True
        if torch.compiler.is_compiling() or not is_functorch_wrapped_tensor(tensor):
            return False
        tensor = get_unwrapped(tensor)  # what the innermost transform wraps


def alive(tensor: Tensor) -> Tensor:
    """Return ``tensor`` without the transforms that have ended since it was saved."""
    while not torch.compiler.is_compiling() and (inner := unwrap_if_dead(tensor)) is not tensor:
        tensor = inner
    return tensor


def vmapped() -> bool:
    """Return whether a ``torch.vmap`` is one of the transforms."""
    return any(t.key() == TransformType.Vmap for t in transforms())


def tangents(enabled: bool) -> AbstractContextManager[Any]:
    """Enable or disable forward-mode derivatives, as ``torch.set_grad_enabled`` does reverse."""
    under_way = forward_ad._current_level >= 0
    return forward_ad._set_fwd_grad_enabled(enabled) if under_way else nullcontext()


def write(operator: Callable[..., Tensor], *arguments: Any, out: Tensor) -> Tensor:
    """Call ``operator`` with ``out=``; copy if traced, where ``out`` cannot be a view."""
    return out.copy_(operator(*arguments)) if traced() else operator(*arguments, out=out)


def may_read(device: torch.device) -> bool:
    """Return whether reading a number is cheap; an accelerator finishes all queued work first."""
    return device.type == "cpu" and not traced()


class ActivityFlag:
    """Answers "is any sample still active?", on CUDA with the answer of ``lag`` questions ago.

    On CUDA each question starts a copy to pinned memory and waits only for the copy started ``lag``
    questions earlier, so that the device always has work queued. A late answer changes no result,
    since samples that have stopped are frozen; while traced it is always yes.
    """

    def __init__(self, device: torch.device, lag: int = 2) -> None:
        self._cuda = device.type == "cuda"
        self._traced = traced()
        self._lag = lag
        self._pending: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def any(self, active: Tensor) -> bool:
        """Return whether any entry of ``active`` is true, or was ``lag`` calls ago."""
        if self._traced:
            return True
        if not self._cuda:
            return bool(active.any())
        host = torch.empty((), dtype=torch.bool, device="cpu", pin_memory=True)
        host.copy_(active.any(), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(active.device))
        self._pending.append((host, event))
        if len(self._pending) <= self._lag:
            return True
        answer, ready = self._pending.popleft()
        ready.synchronize()
        return bool(answer)
