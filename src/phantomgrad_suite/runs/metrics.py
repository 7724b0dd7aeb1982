"""Names, units and number formats of metrics."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How tables show a metric: ``key`` in records, ``scale`` times the value, in ``decimals``."""

    key: str
    title: str
    unit: str = ""
    scale: float = 1.0
    decimals: int = 3
    higher_is_better: bool = True

    @property
    def heading(self) -> str:
        """Name, unit and the direction of better values."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.title}{unit} {'↑' if self.higher_is_better else '↓'}"

    @property
    def curve(self) -> str:
        """The name of its test curve in a record."""
        return f"test/{self.key}"

    def format(self, value: float) -> str:
        """Return a value of a record as it is printed."""
        return f"{value * self.scale:.{self.decimals}f}"


METRICS = {
    "accuracy": Metric("accuracy", "accuracy", "%", scale=100, decimals=1),
    "cell_accuracy": Metric("cell_accuracy", "cell accuracy", "%", scale=100, decimals=1),
    "exact_accuracy": Metric("exact_accuracy", "exact accuracy", "%", scale=100, decimals=1),
    "micro_f1": Metric("micro_f1", "micro-F1", "%", scale=100, decimals=1),
    "perplexity": Metric("perplexity", "perplexity", decimals=1, higher_is_better=False),
    "loss": Metric("loss", "loss", decimals=4, higher_is_better=False),
}
"""The metrics of the tasks, by key."""


def metric_of(key: str, mode: str = "max") -> Metric:
    """Return a metric; if it is unknown, ``mode`` says whether ``max`` or ``min`` is better."""
    return METRICS.get(key, Metric(key, key.replace("_", " "), higher_is_better=mode == "max"))
