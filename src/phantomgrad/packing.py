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
        return self.joined(tensors)

    def joined(self, tensors: list[Tensor]) -> Tensor:
        """Return one ``(B, D)`` tensor of those of a state, in the order of its structure."""
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


def padding_of(mask: Any, z0: Any, packing: Packing | None) -> Tensor:
    """Return where ``z0``, as one tensor, is padding: the complement of its ``mask``.

    ``mask`` has the structure of ``z0``; each of its tensors is boolean and has the dimensions of
    its state, of which any may be 1, or is ``None`` for a state without padding.
    """
    states, structure = tree_flatten(z0)
    masks, given = tree_flatten(mask)
    if given != structure:
        raise ValueError(
            "state_mask must have the structure of z0, with None for a state without padding: "
            f"z0 is {_described(structure)}, got {_described(given)}"
        )
    full = [_checked_mask(m, z) for m, z in zip(masks, states, strict=True)]
    if packing is None:
        return ~full[0]
    whole = [m.expand(z.shape) for m, z in zip(full, states, strict=True)]
    return ~packing.joined(whole)


def _checked_mask(mask: Tensor | None, z: Tensor) -> Tensor:
    if mask is None:
        return torch.ones([1] * z.dim(), dtype=torch.bool, device=z.device)
    shape = tuple(mask.shape) if isinstance(mask, Tensor) else ()
    fits = len(shape) == z.dim() and all(m in (1, n) for m, n in zip(shape, z.shape, strict=True))
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or not fits:
        got = f"{mask.dtype} of shape {shape}" if isinstance(mask, Tensor) else repr(mask)
        raise ValueError(
            "state_mask must be boolean, True for what counts, with the dimensions of the state, "
            f"each of its size or 1: the state has shape {tuple(z.shape)}, got {got}"
        )
    return mask


def _flattened(name: str, states: Any) -> tuple[list[Tensor], TreeSpec]:
    """Return the tensors of ``states`` and how they are nested."""
    tensors, structure = tree_flatten(states)
    others = [type(t).__name__ for t in tensors if not isinstance(t, Tensor)]
    if others:
        raise TypeError(f"{name} must consist of tensors, got {', '.join(others)} in it")
    return tensors, structure


def _described(structure: TreeSpec) -> str:
    return str(tree_unflatten(["*"] * structure.num_leaves, structure)).replace("'*'", "*")
