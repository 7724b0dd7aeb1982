"""The arithmetic of a method's own products: as its iterates say, whatever ``f`` is computed in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


def own_arithmetic(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which neither autocast nor TF32 rounds a product.

    They are for ``f``. A method's own products would round its iterates: with them in TF32,
    Anderson's ends at residuals of 2e-4.
    """
    autocast = torch.is_autocast_enabled(device.type)
    tf32 = device.type == "cuda" and torch.backends.cuda.matmul.fp32_precision == "tf32"
    return _exact(device, tf32) if autocast or tf32 else nullcontext()


@contextmanager
def _exact(device: torch.device, tf32: bool) -> Iterator[None]:
    onednn: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    asked, theirs = _asked() if tf32 else None, onednn.fp32_precision
    with torch.autocast(device.type, enabled=False):
        if tf32:
            torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            if asked is not None:
                torch.set_float32_matmul_precision(asked)
            elif tf32:
                torch.backends.cuda.matmul.fp32_precision = "tf32"
            if tf32:  # the setting above is one for all
                onednn.fp32_precision = theirs


def _asked() -> str | None:
    """Return what ``set_float32_matmul_precision`` was told, ``None`` if it was not that."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch's two ways of asking for TF32 refuse each other's answers
        return None
