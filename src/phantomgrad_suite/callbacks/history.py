"""The metrics of every epoch, kept through interruptions; what the record is made of."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from lightning import Callback, LightningModule, Trainer

from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Result


class History(Callback):
    """Collects the logged value of each metric at the end of every epoch.

    ``curves`` maps a metric to its values by epoch; an epoch without a value holds ``nan``.
    """

    def __init__(self) -> None:
        self.curves: dict[str, list[float]] = {}
        self.epochs = 0

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Enter this epoch.

        Raises:
            UserError: the training loss is no longer finite.
        """
        if getattr(pl_module, "has_counted", True):
            check_finite(trainer.callback_metrics.get("train/loss"), self.epochs + 1)
        self.epochs += 1
        for name, value in trainer.callback_metrics.items():
            curve = self.curves.setdefault(name, [])
            curve.extend([float("nan")] * (self.epochs - 1 - len(curve)))
            curve.append(float(value))

    def state_dict(self) -> dict[str, Any]:
        """Return the epochs so far."""
        return {"curves": {k: list(v) for k, v in self.curves.items()}, "epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the epochs of a checkpoint."""
        self.curves, self.epochs = state_dict["curves"], state_dict["epochs"]

    def result(self, metric: str, mode: Literal["max", "min"] = "max") -> Result:
        """Return the best and the last test value, and the one selected on validation data.

        Ties go to the earliest epoch; on the validation set, first to the smaller loss. An epoch
        without a value is never chosen.

        Args:
            metric: its name.
            mode: which end of it is the good one.

        Raises:
            UserError: there is no test value at all.
        """
        test = self.curves.get(f"test/{metric}")
        if test is None:
            raise UserError(
                f"the run ended after {self.epochs} epochs without a value of test/{metric}: "
                "let it evaluate earlier, or train longer"
            )
        good = {"max": 1, "min": -1}[mode]
        best = max(range(len(test)), key=lambda i: _or_worst(good * test[i]))
        result = Result(
            metric=metric, best=test[best], best_epoch=best + 1, last=test[-1], mode=mode
        )
        validation = self.curves.get(f"validation/{metric}")
        if validation is None:
            return result
        losses = self.curves["validation/loss"]
        chosen = max(range(len(test)), key=lambda i: (_or_worst(good * validation[i]), -losses[i]))
        return replace(result, selected=test[chosen], selected_epoch=chosen + 1)


def _or_worst(value: float) -> float:
    return -math.inf if math.isnan(value) else value
