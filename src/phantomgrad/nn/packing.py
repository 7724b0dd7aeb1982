"""Several tensors as one state, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from phantomgrad.solvers.maps import flat, is_channels_last


@dataclass(frozen=True)
class Packing:
    """The shapes of several states that are solved for together.

    ``pack`` flattens tensors ``(B, *state_i)`` and joins them to one ``(B, sum D_i)``; ``unpack``
    returns views of it, without a copy. Images that are channels last in memory are packed in that
    order, and unpacked channels last, which saves a transposition at every evaluation.

    Args:
        shapes: the shape of each state without its batch dimension.
        channels_last: for each state, whether it is an image ``(C, H, W)`` packed as ``(H, W, C)``.
    """

    shapes: tuple[torch.Size, ...]
    channels_last: tuple[bool, ...]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Packing:
        """Return the packing of ``tensors``, which must share batch size and dtype."""
        _check_tensors("a packed state", tensors)
        if not tensors:
            raise ValueError("a packed state needs at least one tensor, got none")
        if any(t.dim() == 0 for t in tensors):
            raise ValueError("every tensor of a packed state must have a batch dimension")
        sizes = [t.shape[0] for t in tensors]
        if len(set(sizes)) > 1:
            raise ValueError(f"the tensors of a packed state must share their batch, got {sizes}")
        dtypes = sorted({str(t.dtype) for t in tensors})
        if len(dtypes) > 1:
            raise ValueError(f"the tensors of a packed state must share their dtype, got {dtypes}")
        return cls(tuple(t.shape[1:] for t in tensors), tuple(map(is_channels_last, tensors)))

    def pack(self, tensors: Any) -> Tensor:
        """Return one ``(B, D)`` tensor."""
        _check_tensors("the result of f for several states", tensors)
        shapes = tuple(t.shape[1:] for t in tensors)
        if shapes != self.shapes:
            raise ValueError(
                "f must keep the shapes of the states: it maps "
                f"{[tuple(s) for s in self.shapes]} to {[tuple(s) for s in shapes]}"
            )
        pairs = zip(tensors, self.channels_last, strict=True)
        return torch.cat([flat(t.permute(0, 2, 3, 1) if last else t) for t, last in pairs], dim=1)

    def unpack(self, packed: Tensor) -> tuple[Tensor, ...]:
        """Return views of ``packed``, ``(B, *state_i)`` each."""
        pieces = torch.split(packed, [shape.numel() for shape in self.shapes], dim=1)
        kinds = zip(pieces, self.shapes, self.channels_last, strict=True)
        return tuple(_unflattened(*kind) for kind in kinds)


class CoupledPacking:
    """A batch whose samples depend on each other, as one sample: ``(1, B, *state)``.

    Several states, which may differ in their first dimension, become ``(1, D)``.

    Args:
        z0: a state, or several.
    """

    def __init__(self, z0: Tensor | Sequence[Tensor]) -> None:
        if not isinstance(z0, Tensor):
            _check_tensors("a packed state", z0)
        single = isinstance(z0, Tensor)
        self._several = None if single else Packing.of([t.unsqueeze(0) for t in z0])

    def pack(self, z: Any) -> Tensor:
        """Return one tensor with a batch of one."""
        if self._several is not None:
            _check_tensors("the result of f for several states", z)
            return self._several.pack([t.unsqueeze(0) for t in z])
        if not isinstance(z, Tensor):
            raise TypeError(f"f must return one tensor, got {type(z).__name__}")
        return z.unsqueeze(0)

    def unpack(self, packed: Tensor) -> Any:
        """Return views of ``packed`` in the structure and shapes of ``z0``."""
        if self._several is None:
            return packed.squeeze(0)
        return tuple(t.squeeze(0) for t in self._several.unpack(packed))


def _check_tensors(name: str, tensors: object) -> None:
    if not isinstance(tensors, Sequence):
        raise TypeError(f"{name} must be a sequence of tensors, got {type(tensors).__name__}")
    others = [type(t).__name__ for t in tensors if not isinstance(t, Tensor)]
    if others:
        raise TypeError(f"{name} must be a sequence of tensors, got {', '.join(others)} in it")


def _unflattened(piece: Tensor, shape: torch.Size, channels_last: bool) -> Tensor:
    if not channels_last:
        return piece.view(piece.shape[0], *shape)
    c, h, w = shape
    return piece.view(piece.shape[0], h, w, c).permute(0, 3, 1, 2)
