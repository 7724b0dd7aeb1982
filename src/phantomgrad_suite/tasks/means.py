"""Means over an epoch that an interruption does not cut."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class EpochMeans:
    """Weighted means of named numbers, with a state for checkpoints.

    Lightning averages what is logged as well, but forgets it where a run breaks off.
    """

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._weights: dict[str, float] = {}
        self._waiting: list[tuple[str, Tensor, float]] = []
        self._known: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor, weight: float = 1) -> None:
        """Count a number, so many times, once its step is settled."""
        self._waiting.append((name, value.detach(), weight))

    def settle(self) -> None:
        """Count what was added since."""
        waiting, self._waiting = self._waiting, []
        for name, value, weight in waiting:
            self._count(name, value * weight, weight)

    def leave_out(self) -> None:
        """Forget what was added since."""
        self._waiting = []

    def _count(self, name: str, value: Tensor, weight: float) -> None:
        before = self._totals.get(name)
        self._totals[name] = value if before is None else before.to(value.device) + value
        self._weights[name] = self._weights.get(name, 0) + weight

    def total(self, name: str) -> Tensor | None:
        """Return the weighted sum of a number, ``None`` if it was not counted."""
        self.settle()
        return self._totals.get(name)

    def take(self) -> dict[str, Tensor]:
        """Return the means, nan of what was counted before but not this time, and begin anew."""
        self.settle()
        means = {name: total / self._weights[name] for name, total in self._totals.items()}
        self._known |= {name: torch.full_like(mean, math.nan) for name, mean in means.items()}
        means = self._known | means
        self._totals, self._weights = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted so far."""
        self.settle()
        return {"totals": dict(self._totals), "weights": dict(self._weights)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what was counted before."""
        self._totals, self._weights = dict(state_dict["totals"]), dict(state_dict["weights"])
