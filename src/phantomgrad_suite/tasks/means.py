"""Means over an evaluation."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torchmetrics import MeanMetric


class Means(nn.Module):
    """Means over the evaluation of all processes, by name; NaN where a value is."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        # By default NaN would be left out of the mean.
        self._metrics: Any = nn.ModuleDict({name: MeanMetric("disable") for name in names})

    def add(self, name: str, values: Tensor) -> None:
        """Add values of a batch."""
        self._metrics[name].update(values)

    def take(self) -> dict[str, Tensor]:
        """Return the means, and begin anew."""
        means = {name: metric.compute() for name, metric in self._metrics.items()}
        for metric in self._metrics.values():
            metric.reset()
        return means
