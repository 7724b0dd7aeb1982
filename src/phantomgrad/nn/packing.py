"""Several tensors as one state, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """The shapes of several states that are solved for together.

    ``pack`` flattens tensors ``(B, *state_i)`` and joins them to one ``(B, sum D_i)``; ``unpack``
    returns views of it, without a copy.

    Args:
        shapes: the shape of each state without its batch dimension.
    """

    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Packing:
        """Return the packing of ``tensors``, which must share their batch size.

        Raises:
            ValueError: no tensor, a tensor without batch dimension, or batch sizes that differ.
        """
        if not tensors:
            raise ValueError("a packed state needs at least one tensor, got none")
        if any(t.dim() == 0 for t in tensors):
            raise ValueError("every tensor of a packed state must have a batch dimension")
        sizes = [t.shape[0] for t in tensors]
        if len(set(sizes)) > 1:
            raise ValueError(f"the tensors of a packed state must share their batch, got {sizes}")
        return cls(tuple(t.shape[1:] for t in tensors))

    def pack(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return one ``(B, D)`` tensor.

        Raises:
            ValueError: the tensors do not have the shapes of this packing.
        """
        shapes = tuple(t.shape[1:] for t in tensors)
        if shapes != self.shapes:
            raise ValueError(
                "f must keep the shapes of the states: it maps "
                f"{[tuple(s) for s in self.shapes]} to {[tuple(s) for s in shapes]}"
            )
        return torch.cat([t.flatten(1) if t.dim() > 1 else t.unsqueeze(1) for t in tensors], dim=1)

    def unpack(self, packed: Tensor) -> tuple[Tensor, ...]:
        """Return views of ``packed``, ``(B, *state_i)`` each."""
        pieces = torch.split(packed, [shape.numel() for shape in self.shapes], dim=1)
        batch = packed.shape[0]
        return tuple(p.view(batch, *s) for p, s in zip(pieces, self.shapes, strict=True))
