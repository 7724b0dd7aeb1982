"""Curves that enter the record of a run: the logged metrics, and those of other callbacks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from lightning import Callback, LightningModule, Trainer

from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Result


class Series(Callback):
    """A callback with curves of its own for the record, saved in checkpoints."""

    def __init__(self) -> None:
        self._curves: dict[str, list[float]] = {}
        self._length = 0

    def keep(self, values: dict[str, float]) -> None:
        """Add a point; curves without a value there get ``nan``."""
        for name, value in values.items():
            self._curves.setdefault(name, [math.nan] * self._length).append(value)
        self._length += 1
        for curve in self._curves.values():
            curve.extend([math.nan] * (self._length - len(curve)))

    def curves(self) -> dict[str, list[float]]:
        """Return a copy of the curves."""
        return {name: list(curve) for name, curve in self._curves.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the curves so far."""
        return {"curves": self.curves(), "length": self._length}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the curves of a checkpoint."""
        self._curves, self._length = state_dict["curves"], state_dict["length"]


class History(Callback):
    """Collects all logged metrics at the end of every epoch.

    ``curves`` maps a metric to its values by epoch, ``nan`` where there was none.
    """

    def __init__(self) -> None:
        self.curves: dict[str, list[float]] = {}
        self.epochs = 0

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the metrics of this epoch, unless the training loss is not finite."""
        if getattr(pl_module, "has_counted", True):
            check_finite(trainer.callback_metrics.get("train/loss"), self.epochs + 1)
        for name, value in trainer.callback_metrics.items():
            curve = self.curves.setdefault(name, [])
            curve.extend([math.nan] * (self.epochs - len(curve)))
            curve.append(float(value))
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the epochs so far."""
        return {"curves": {k: list(v) for k, v in self.curves.items()}, "epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the epochs of a checkpoint."""
        self.curves, self.epochs = state_dict["curves"], state_dict["epochs"]

    def result(self, metric: str, mode: Literal["max", "min"] = "max") -> Result:
        """Return the best, the last and the selected test value of a metric.

        The epoch with the best validation value is selected, of equal ones that with the smallest
        validation loss. Further ties go to the earliest epoch.

        Raises:
            UserError: there is no test value.
        """
        test = self.curves.get(f"test/{metric}")
        if test is None:
            raise UserError(
                f"the run ended after {self.epochs} epochs without a value of test/{metric}: "
                "evaluate earlier, or train longer"
            )

        def rank(value: float) -> float:
            return -math.inf if math.isnan(value) else value if mode == "max" else -value

        best = max(range(len(test)), key=lambda i: rank(test[i]))
        result = Result(metric, best=test[best], best_epoch=best + 1, last=test[-1], mode=mode)
        validation = self.curves.get(f"validation/{metric}")
        if validation is None:
            return result
        losses = self.curves["validation/loss"]
        chosen = max(range(len(test)), key=lambda i: (rank(validation[i]), -losses[i]))
        return replace(result, selected=test[chosen], selected_epoch=chosen + 1)
