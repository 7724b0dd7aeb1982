"""Precision: the dtype in which a map computes, and the products of solvers in full float32."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor


def working_dtype(z: Tensor) -> torch.dtype:
    """Return the dtype in which a map of ``z`` computes, that of autocast if it is enabled."""
    device = z.device.type
    if _autocast_enabled(device) and z.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return z.dtype


def _autocast_enabled(device_type: str) -> bool:
    known = device_type != "meta"  # which has no autocast
    return known and torch.is_autocast_enabled(device_type)


def widest_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on MPS, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def autocast_settings(device_type: str) -> dict[str, Any]:
    """Return the present arguments of ``torch.autocast``, for evaluations in a backward pass."""
    return {
        "device_type": device_type,
        "dtype": torch.get_autocast_dtype(device_type),
        "enabled": torch.is_autocast_enabled(device_type),
        "cache_enabled": False,  # a cached copy would be on the graph of one evaluation
    }


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Switch autocast and TF32 off.

    In the products of a solver they would round its iterates: with TF32, Anderson acceleration
    stalls at residuals of 2e-4. A compiled graph cannot hold a change of TF32, and keeps it.
    """
    if _has_tf32(device):
        return _without_tf32(device)
    if _autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def is_lowered(device: torch.device) -> bool:
    """Return whether :func:`full_precision` has something to switch off."""
    return _has_tf32(device) or _autocast_enabled(device.type)


def _has_tf32(device: torch.device) -> bool:
    may_have_it = device.type == "cuda" and not torch.compiler.is_compiling()
    return may_have_it and torch.backends.cuda.matmul.fp32_precision == "tf32"


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
