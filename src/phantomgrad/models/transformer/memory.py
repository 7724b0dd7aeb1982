"""What a segment leaves to the next one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Memory(NamedTuple):
    """The last positions of the segments so far, off the graph.

    Attributes:
        states: equilibria, ``(B, M, d)``.
        injections: the injections that led to them, ``(B, M, 3 d)``.
    """

    states: Tensor
    injections: Tensor

    @property
    def length(self) -> int:
        """M."""
        return self.states.shape[1]

    def extended(self, states: Tensor, injections: Tensor, length: int) -> Memory:
        """Return the last ``length`` positions of this memory and what follows, or all there are.

        Args:
            states: equilibria of the next segment, ``(B, L, d)``.
            injections: its injections, ``(B, L, 3 d)``.
            length: how many to keep.
        """
        return Memory(
            _last(self.states, states, length), _last(self.injections, injections, length)
        )


def empty_memory(injections: Tensor, dtype: torch.dtype) -> Memory:
    """Return the memory in front of a first segment with ``injections``, ``(B, L, 3 d)``."""
    batch, _, channels = injections.shape
    return Memory(
        *(
            torch.empty(batch, 0, n, dtype=dtype, device=injections.device)
            for n in (channels // 3, channels)
        )
    )


def check_memory(memory: Memory, batch: int, width: int) -> None:
    """Raise unless ``memory`` goes with ``batch`` sequences of states of that width."""
    states, injections = (tuple(t.shape) for t in memory)
    length = states[1] if len(states) == 3 else 0
    if states != (batch, length, width) or injections != (batch, length, 3 * width):
        raise ValueError(
            f"memory must hold states ({batch}, M, {width}) and injections "
            f"({batch}, M, {3 * width}), got {states} and {injections}"
        )


def _last(old: Tensor, new: Tensor, length: int) -> Tensor:
    # Cut first: what is kept must not hold the storage of what is not.
    new = new.detach().to(old.dtype)[:, max(0, new.shape[1] - length) :]
    return torch.cat([old[:, max(0, old.shape[1] + new.shape[1] - length) :], new], dim=1)
