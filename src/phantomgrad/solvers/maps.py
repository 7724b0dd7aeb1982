"""Maps of a batch of states: their evaluation, and the precision they compute in."""

from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
"""A map of a batch of states, ``(B, *state)``, to a new tensor of the same shape.

It must not modify its argument, which the solver still needs.
"""


def flat(x: Tensor) -> Tensor:
    """Return a batch of states as ``(B, D)``; a state may be a scalar."""
    return x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)


def evaluate(f: Map, z: Tensor) -> Tensor:
    """Return ``f(z)``.

    Raises:
        TypeError: the result is not a tensor.
        ValueError: it has another shape or device than ``z``, or ``f`` has modified ``z``.
    """
    versioned = not torch.compiler.is_compiling() and not z.is_inference()
    version = z._version if versioned else None
    fz = f(z)
    if not isinstance(fz, Tensor):
        raise TypeError(f"f must return one tensor, got {type(fz).__name__}")
    if fz.shape != z.shape:
        raise ValueError(
            f"f must keep the shape of the state: it maps {tuple(z.shape)} to {tuple(fz.shape)}"
        )
    if fz.device != z.device:
        raise ValueError(f"f must keep the device: z is on {z.device}, f(z) on {fz.device}")
    if versioned and z._version != version:
        raise ValueError("f must not modify its argument in place: write z = z + x, not z += x")
    return fz


def working_dtype(z: Tensor) -> torch.dtype:
    """Return the dtype in which a map of ``z`` computes, that of autocast if it is enabled."""
    device = z.device.type
    if torch.is_autocast_enabled(device) and z.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return z.dtype
