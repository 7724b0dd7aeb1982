"""Curves that enter the record of a run: the logged metrics, and those of other callbacks."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from lightning import Callback, LightningModule, Trainer

from phantomgrad_suite.checkpoint.finite import check_finite
from phantomgrad_suite.runs.errors import SettingError
from phantomgrad_suite.runs.records import Result

_COSTS = (
    *("seconds/step_cpu", "seconds/f", "seconds/f_cpu"),
    *("solver/evaluations", "adjoint/evaluations"),
)
_EVALUATED = ("test/", "validation/")


class Series(Callback):
    """A callback with curves for the record, by name, which are saved in checkpoints."""

    def __init__(self) -> None:
        self.curves: dict[str, list[float]] = {}
        self._length = 0

    def keep(self, values: dict[str, float]) -> None:
        """Add a point to every curve: ``nan`` where one has no value, now or earlier."""
        for name in {**self.curves, **values}:
            curve = self.curves.setdefault(name, [math.nan] * self._length)
            curve.append(values.get(name, math.nan))
        self._length += 1

    def state_dict(self) -> dict[str, Any]:
        return {"curves": self.curves, "length": self._length}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.curves, self._length = state_dict["curves"], state_dict["length"]


class History(Series):
    """Collects all logged metrics at the end of every epoch.

    Those of evaluation sets are ``nan`` in an epoch without an evaluation.
    """

    def __init__(self) -> None:
        super().__init__()
        self._evaluated = False

    @property
    def epochs(self) -> int:
        return self._length

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._evaluated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        check_finite(self.epochs + 1, trainer.callback_metrics.get("train/loss"), pl_module)
        found = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self._evaluated:
            _check_metric(found, pl_module.metric)
        else:  # Lightning keeps the values of the last evaluation
            if (self.epochs + 1) % (trainer.check_val_every_n_epoch or 1) == 0:
                raise SettingError(
                    "an epoch ended without its evaluation: train a whole epoch, which "
                    "+trainer.limit_train_batches=5 shortens"
                )
            found = {n: value for n, value in found.items() if not n.startswith(_EVALUATED)}
        self.keep(found)
        self._evaluated = False

    def recorded(self, callbacks: Iterable[Callback]) -> dict[str, list[float]]:
        """Return the curves for the record, rounded to six digits, with those of ``callbacks``."""
        groups = ("train/", "test/", "validation/", "gradient/")
        kept = {n: c for n, c in self.curves.items() if n.startswith(groups) or n in _COSTS}
        for callback in callbacks:
            if isinstance(callback, Series) and callback is not self:
                kept |= callback.curves
        return {name: [_rounded(value) for value in curve] for name, curve in kept.items()}

    def solver_means(self) -> dict[str, float]:
        """Return ``evaluations``, ``residual`` ... and ``adjoint_*``, averaged over the epochs."""
        means = {}
        for name, curve in self.curves.items():
            group, _, quantity = name.partition("/")
            known = [value for value in curve if not math.isnan(value)]  # nan in pretraining
            if group in ("solver", "adjoint") and known:
                key = quantity if group == "solver" else f"adjoint_{quantity}"
                means[key] = sum(known) / len(known)
        return means

    def result(self, metric: str, mode: Literal["max", "min"] = "max") -> Result:
        """Return the best, the last and the selected test value of a metric.

        Only epochs with an evaluation count. The epoch with the best validation value is selected;
        ties are broken by the smaller validation loss.
        """
        test = self.curves[f"test/{metric}"]

        def rank(value: float, mode: str = mode) -> float:
            return -math.inf if math.isnan(value) else value if mode == "max" else -value

        best = max(range(len(test)), key=lambda i: rank(test[i]))
        result = Result(metric, best=test[best], best_epoch=best + 1, last=test[-1], mode=mode)
        validation = self.curves.get(f"validation/{metric}")
        if validation is None:
            return result
        losses = self.curves["validation/loss"]
        chosen = max(range(len(test)), key=lambda i: (rank(validation[i]), rank(losses[i], "min")))
        return replace(result, selected=test[chosen], selected_epoch=chosen + 1)


def _check_metric(found: Iterable[str], metric: Any) -> None:
    known = sorted(name.removeprefix("test/") for name in found if name.startswith("test/"))
    if metric not in known:
        raise SettingError(
            f"task.metric must be one that is evaluated ({', '.join(known)}), got {metric!r}"
        )


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")
