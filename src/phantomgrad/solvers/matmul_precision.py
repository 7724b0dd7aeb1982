"""Full precision for the matrix products of a solver, whatever precision ``f`` runs in."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast and without TF32.

    Both are meant for ``f``. In the products of a solver they would round its iterates: with TF32,
    Anderson acceleration stalls at residuals of 2e-4.
    """
    autocast = torch.is_autocast_enabled(device.type)
    tf32 = device.type == "cuda" and torch.backends.cuda.matmul.fp32_precision == "tf32"
    return _full_precision(device, tf32) if autocast or tf32 else nullcontext()


@contextmanager
def _full_precision(device: torch.device, tf32: bool) -> Iterator[None]:
    onednn: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, onednn_before = _matmul_precision() if tf32 else None, onednn.fp32_precision
    with torch.autocast(device.type, enabled=False):
        if tf32:
            torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            if before is not None:
                torch.set_float32_matmul_precision(before)
            elif tf32:
                torch.backends.cuda.matmul.fp32_precision = "tf32"
            if tf32:  # set_float32_matmul_precision has changed oneDNN's setting too
                onednn.fp32_precision = onednn_before


def _matmul_precision() -> str | None:
    """Return the setting of ``set_float32_matmul_precision``; None if TF32 was set another way."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to read one of its two TF32 settings through the other
        return None
