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


def layout(z0: Tensor) -> tuple[Map, Map]:
    """Return how states like ``z0`` become ``(B, D)``, and how they come back.

    Images that are channels last in memory keep that order, which saves two transpositions at
    every evaluation.
    """
    last = z0.dim() == 4 and z0.is_contiguous(memory_format=torch.channels_last)
    shape = z0.shape[1:]
    if not last or z0.is_contiguous():
        return flat, lambda z: z.view(len(z), *shape)
    c, h, w = shape
    return (
        lambda z: flat(z.permute(0, 2, 3, 1)),
        lambda z: z.view(len(z), h, w, c).permute(0, 3, 1, 2),
    )


def evaluate(f: Map, z: Tensor) -> Tensor:
    """Return ``f(z)``; raise unless it is a tensor like ``z``, which ``f`` has not modified."""
    versioned = not torch.compiler.is_compiling() and not z.is_inference()
    version = z._version if versioned else None
    fz = f(z)
    if not isinstance(fz, Tensor):
        raise TypeError(
            f"f must return one tensor, got {type(fz).__name__}: f is a map of the state, such as "
            "lambda z: layer.cell(z, x), and returns the next state alone"
        )
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
