"""Series of numbers that a callback keeps for the record of a run."""

from __future__ import annotations

import math
from typing import Any

from lightning import Callback


class Series(Callback):
    """A callback whose own curves enter the record, whole also after an interruption.

    Each call of :meth:`keep` adds one value to every curve; one that has none there gets ``nan``.
    """

    def __init__(self) -> None:
        self._curves: dict[str, list[float]] = {}
        self._length = 0

    def keep(self, values: dict[str, float]) -> None:
        """Add a point to the curves."""
        for name, value in values.items():
            self._curves.setdefault(name, [math.nan] * self._length).append(value)
        self._length += 1
        for curve in self._curves.values():
            curve.extend([math.nan] * (self._length - len(curve)))

    def curves(self) -> dict[str, list[float]]:
        """Return the curves so far, by name."""
        return {name: list(curve) for name, curve in self._curves.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the curves so far."""
        return {"curves": self.curves(), "length": self._length}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the curves of a checkpoint."""
        self._curves, self._length = state_dict["curves"], state_dict["length"]
