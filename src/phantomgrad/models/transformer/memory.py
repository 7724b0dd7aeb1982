"""The memory that a segment passes on to the next one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Memory(NamedTuple):
    """The last positions of the previous segments, off the graph.

    Attributes:
        states: equilibria, ``(B, M, d)``.
        injections: their injections, ``(B, M, 3 d)``.
    """

    states: Tensor
    injections: Tensor

    @property
    def length(self) -> int:
        """M."""
        return self.states.shape[1]

    def extended(self, states: Tensor, injections: Tensor, length: int) -> Memory:
        """Return the last ``length`` positions of this memory and the segment after it."""
        return Memory(
            _last(self.states, states, length), _last(self.injections, injections, length)
        )


def empty_memory(injections: Tensor, dtype: torch.dtype) -> Memory:
    """Return the memory before a first segment with ``injections``, ``(B, L, 3 d)``."""
    batch, _, channels = injections.shape
    empty = torch.empty(batch, 0, channels, dtype=dtype, device=injections.device)
    return Memory(empty[..., : channels // 3], empty)


def check_memory(memory: Memory, batch: int, width: int) -> None:
    """Raise unless ``memory`` belongs to ``batch`` sequences of states of that width."""
    states, injections = (tuple(t.shape) for t in memory)
    length = states[1] if len(states) == 3 else 0
    if states != (batch, length, width) or injections != (batch, length, 3 * width):
        raise ValueError(
            f"memory must hold states ({batch}, M, {width}) and injections "
            f"({batch}, M, {3 * width}), got {states} and {injections}"
        )


def _last(old: Tensor, new: Tensor, length: int) -> Tensor:
    # Cut before joining, so that the result does not hold the storage of dropped positions.
    new = new.detach().to(old.dtype)[:, max(0, new.shape[1] - length) :]
    return torch.cat([old[:, max(0, old.shape[1] + new.shape[1] - length) :], new], dim=1)
