"""Several tensors as one state, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from phantomgrad.solvers.base import Map, layout


@dataclass(frozen=True)
class Packing:
    """The structure and shapes of tensors that are solved for together.

    ``pack`` flattens the tensors ``(B, *state_i)`` of a tuple, list, dictionary or named tuple, in
    any nesting, and joins them to one ``(B, sum D_i)``. ``unpack`` returns views of it, without a
    copy. With ``coupled``, the whole batch is packed as one sample, ``(1, D)``; then the tensors
    may differ in their first dimension.
    """

    structure: TreeSpec
    shapes: tuple[torch.Size, ...]  # without the batch
    layouts: tuple[tuple[Map, Map], ...]  # how each tensor is flattened and restored
    coupled: bool = False

    @classmethod
    def of(cls, states: Any, *, coupled: bool = False) -> Packing:
        """Return the packing of ``states``, which must share their dtype and, if not coupled, B."""
        tensors, structure = _flattened("a packed state", states)
        if not tensors:
            raise ValueError("a packed state needs at least one tensor, got none")
        if coupled:
            tensors = [t.unsqueeze(0) for t in tensors]
        if any(t.dim() == 0 for t in tensors):
            raise ValueError(
                "every tensor of a packed state must have a batch dimension, got a scalar tensor"
            )
        sizes = [t.shape[0] for t in tensors]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"the tensors of a packed state must share their batch, got {sizes} as first "
                "dimensions (with coupled=True they may differ)"
            )
        dtypes = sorted({str(t.dtype) for t in tensors})
        if len(dtypes) > 1:
            raise ValueError(f"the tensors of a packed state must share their dtype, got {dtypes}")
        shapes, layouts = tuple(t.shape[1:] for t in tensors), tuple(map(layout, tensors))
        return cls(structure, shapes, layouts, coupled)

    def pack(self, states: Any) -> Tensor:
        """Return one ``(B, D)`` tensor."""
        tensors, structure = _flattened("the result of f for several states", states)
        if structure != self.structure:
            raise ValueError(
                "f must keep the structure of the states: it maps "
                f"{_described(self.structure)} to {_described(structure)}"
            )
        if self.coupled:
            tensors = [t.unsqueeze(0) for t in tensors]
        shapes = tuple(t.shape[1:] for t in tensors)
        if shapes != self.shapes:
            raise ValueError(
                "f must keep the shapes of the states: it maps "
                f"{[tuple(s) for s in self.shapes]} to {[tuple(s) for s in shapes]}"
            )
        pieces = [flatten(t) for t, (flatten, _) in zip(tensors, self.layouts, strict=True)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def unpack(self, packed: Tensor) -> Any:
        """Return views of ``packed``, ``(B, *state_i)`` each, in their structure."""
        pieces = torch.split(packed, [shape.numel() for shape in self.shapes], dim=1)
        tensors = [restore(t) for t, (_, restore) in zip(pieces, self.layouts, strict=True)]
        if self.coupled:
            tensors = [t.squeeze(0) for t in tensors]
        return tree_unflatten(tensors, self.structure)


def _flattened(name: str, states: Any) -> tuple[list[Tensor], TreeSpec]:
    """Return the tensors of ``states`` and how they are nested."""
    tensors, structure = tree_flatten(states)
    others = [type(t).__name__ for t in tensors if not isinstance(t, Tensor)]
    if others:
        raise TypeError(f"{name} must consist of tensors, got {', '.join(others)} in it")
    return tensors, structure


def _described(structure: TreeSpec) -> str:
    return str(tree_unflatten(["*"] * structure.num_leaves, structure)).replace("'*'", "*")
