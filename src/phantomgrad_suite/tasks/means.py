"""Means over an epoch that survive an interruption."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Sums = dict[str, tuple[Tensor, float]]
"""For each name the weighted sum of its values and the sum of their weights."""


class EpochMeans:
    """Weighted means of named values over an epoch.

    Unlike those of Lightning's ``log`` they can be saved within an epoch, and a step that is
    skipped can be left out: its values are pending until :meth:`settle`.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[str, Tensor, float]] = []
        self._sums: Sums = {}
        self._missing: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor, weight: float = 1) -> None:
        """Add a value of the current step."""
        self._pending.append((name, value.detach(), weight))

    def discard(self) -> None:
        """Drop the pending values."""
        self._pending.clear()

    def settle(self) -> Sums:
        """Count the pending values; return the sums of this epoch so far."""
        for name, value, weight in self._pending:
            total = value * weight
            if name in self._sums:
                before, weights = self._sums[name]
                total, weight = before.to(value.device) + total, weights + weight
            self._sums[name] = total, weight
        self._pending.clear()
        return dict(self._sums)

    def restore(self, sums: Sums) -> None:
        """Continue from what :meth:`settle` returned."""
        self._sums = dict(sums)

    def take(self) -> dict[str, Tensor]:
        """Return the means and start a new epoch; what only earlier epochs had is ``nan``."""
        means = {name: total / weight for name, (total, weight) in self.settle().items()}
        self._missing |= {name: torch.full_like(mean, math.nan) for name, mean in means.items()}
        self._sums = {}
        return self._missing | means
