"""Means over an epoch that an interruption does not cut."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class EpochMeans:
    """Weighted means of named numbers, with a state for checkpoints.

    Lightning averages what is logged as well, but forgets it where a run breaks off.
    """

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._weights: dict[str, float] = {}

    def add(self, name: str, value: Tensor, weight: float = 1) -> None:
        """Count a number, so many times."""
        value = value.detach() * weight
        before = self._totals.get(name)
        self._totals[name] = value if before is None else before.to(value.device) + value
        self._weights[name] = self._weights.get(name, 0) + weight

    def total(self, name: str) -> Tensor | None:
        """Return the weighted sum of a number, ``None`` if it was not counted."""
        return self._totals.get(name)

    def take(self) -> dict[str, Tensor]:
        """Return the means, and begin anew."""
        means = {name: total / self._weights[name] for name, total in self._totals.items()}
        self._totals, self._weights = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted so far."""
        return {"totals": dict(self._totals), "weights": dict(self._weights)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what was counted before."""
        self._totals, self._weights = dict(state_dict["totals"]), dict(state_dict["weights"])
