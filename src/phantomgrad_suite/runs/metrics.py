"""How a metric is called and printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric as tables and figures show it.

    Attributes:
        key: its name in records, for example ``micro_f1``.
        title: its name in print.
        unit: its unit in print.
        scale: from the value in a record to the one in print.
        decimals: of the value in print.
        higher_is_better: which end is the good one.
    """

    key: str
    title: str
    unit: str = ""
    scale: float = 1.0
    decimals: int = 3
    higher_is_better: bool = True

    @property
    def heading(self) -> str:
        """Name, unit and the good direction."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.title}{unit} {'↑' if self.higher_is_better else '↓'}"

    @property
    def curve(self) -> str:
        """The name of its test curve in a record."""
        return f"test/{self.key}"


_KNOWN = {
    metric.key: metric
    for metric in (
        Metric("accuracy", "accuracy", "%", scale=100, decimals=1),
        Metric("micro_f1", "micro-F1", "%", scale=100, decimals=1),
        Metric("perplexity", "perplexity", decimals=1, higher_is_better=False),
        Metric("loss", "loss", decimals=4, higher_is_better=False),
    )
}


def metric_of(key: str, mode: str = "max") -> Metric:
    """Return the metric of a record or of the paper; one not known here is printed as it is.

    Args:
        key: its name.
        mode: which end of an unknown one is the good one, ``max`` or ``min``.
    """
    return _KNOWN.get(key, Metric(key, key.replace("_", " "), higher_is_better=mode == "max"))
