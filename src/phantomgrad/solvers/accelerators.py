"""Solves on an accelerator: full precision whatever ``f`` runs in, and no stalls."""

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Switch autocast and TF32 off.

    In the products of a solver they would round its iterates: with TF32, Anderson acceleration
    stalls at residuals of 2e-4.
    """
    tf32 = device.type == "cuda" and torch.backends.cuda.matmul.fp32_precision == "tf32"
    if not tf32 and not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return _switched_off(device, tf32)


@contextmanager
def _switched_off(device: torch.device, tf32: bool) -> Iterator[None]:
    onednn: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before: str | None = None
    onednn_before = onednn.fp32_precision
    if tf32:
        with suppress(RuntimeError):  # if TF32 was set in another way, torch refuses to read this
            before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before)
        elif tf32:
            torch.backends.cuda.matmul.fp32_precision = "tf32"
        if tf32:  # set_float32_matmul_precision has changed oneDNN's setting too
            onednn.fp32_precision = onednn_before


def may_read(device: torch.device) -> bool:
    """Return whether reading a number is cheap; an accelerator finishes all queued work first."""
    return device.type == "cpu"


class ActivityFlag:
    """Answers "is any sample still active?", on CUDA with the answer of ``lag`` questions ago.

    On CUDA each question starts a copy to pinned memory and waits only for the copy started ``lag``
    questions earlier, so that the device always has work queued. A late answer changes no result,
    since samples that have stopped are frozen.
    """

    def __init__(self, device: torch.device, lag: int = 2) -> None:
        self._cuda = device.type == "cuda"
        self._lag = lag
        self._pending: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def any(self, active: Tensor) -> bool:
        """Return the answer."""
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
