"""What every study is: a setting, and a measurement that trains no model of the suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from phantomgrad_suite.runs.records import Check

T = TypeVar("T")

QUANTILES = tuple(i / 100 for i in range(101))


class Track(Protocol):
    """Passes the items of a sequence on, and may show how far it is."""

    def __call__(self, items: Sequence[T], title: str) -> Iterable[T]:
        """Return ``items``."""


def silently(items: Sequence[T], title: str) -> Iterable[T]:
    """Return ``items``, and show nothing."""
    return items


@dataclass(frozen=True)
class Findings:
    """What a study found.

    Attributes:
        numbers: plain data, in the layout that the study documents.
        checks: the claims that it put to the test.
        headline: what came out, in a line.
    """

    numbers: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    headline: str = ""


class Study(ABC):
    """A measurement; subclasses are frozen dataclasses of its setting."""

    @abstractmethod
    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure everything.

        Args:
            seed: of every random draw.
            device: where to compute.
            track: told of the loops that take long.
        """


def distribution(values: Tensor) -> dict[str, Any]:
    """Return mean, standard deviation and the 101 percentiles of ``values``, all finite.

    The percentiles are entries of ``values`` (the nearest ones), to eight digits.
    """
    ordered = values.flatten().double().sort().values
    places = torch.tensor(QUANTILES, dtype=torch.float64) * (ordered.numel() - 1)
    return {
        "n": ordered.numel(),
        "mean": _short(ordered.mean()),
        "std": _short(ordered.std(unbiased=False)),
        "percentiles": [_short(x) for x in ordered[places.round().long()]],
    }


def _short(value: Tensor) -> float:
    return float(f"{float(value):.8g}")
