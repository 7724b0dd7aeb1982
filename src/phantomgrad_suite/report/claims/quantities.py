"""The quantities of a run that claims compare, as the header of ``results/claims.yaml`` names them.

Where it leaves a choice: evaluations of f are those of all training steps; the cosine is that of
UPG with k = 5 and λ = 0.5, and its slope is fitted by least squares to the step divided by the last
step, so it is the change over the training. Leads are mean differences of cosines over the measured
steps.
"""

import math
import statistics
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from phantomgrad_suite.report.frame import evaluations, metric_of_run
from phantomgrad_suite.runs.records import Record

_COSINE, _STEP = "precision/upg_k5_d0.5/cosine", "precision/step"
_RADIUS, _DAMPED = "precision/spectral_radius/F", "precision/spectral_radius/F_damped"
_TO_NPG = "precision/upg_k5_d0.5/to_npg_k5_d0.5"


class Quantity(NamedTuple):
    """A number ``of`` a run, given the run that it is compared with; NaN if it is not finite."""

    of: Callable[[Record, Record], float]
    is_result: bool = False  # a value of the test metric
    is_change: bool = False  # of the test metric, by other segments or without the solver
    has_margin: bool = False  # it is in the unit of the margin
    decimals: int = 3
    trained_by: Literal["last", "best"] = "last"  # the result that must beat the baselines


def is_logarithm(record: Record, quantity: Quantity) -> bool:
    """Return whether values of ``quantity`` are 100 times a logarithm."""
    of_metric = quantity.is_result or quantity.is_change
    return of_metric and record.result.metric == "perplexity"


def higher_is_better(record: Record, quantity: Quantity) -> bool:
    """Return whether larger values are better; other quantities with a margin are losses."""
    return quantity.is_result and metric_of_run(record).higher_is_better


def in_points(record: Record, value: Any) -> float:
    """Return a value of the test metric in the unit of the margin."""
    if record.result.metric == "perplexity":
        return 100 * float(np.log(float(value)))
    return float(value) * metric_of_run(record).scale


def curve(record: Record, name: str) -> Any:
    """Return a curve of a run as an array, with NaN where nothing was measured."""
    return np.asarray(record.curves[name], dtype=float)


def _at_equal_evaluations(record: Record, other: Record) -> float:
    """Return the metric at the last epoch with a test value within the evaluations of ``other``."""
    tested = curve(record, metric_of_run(record).curve)
    spent = evaluations(record) <= evaluations(other)[-1]
    found = tested[spent & ~np.isnan(tested)]
    return in_points(record, found[-1]) if found.size else math.nan


def _cosine_slope(record: Record, _: Record) -> float:
    steps = curve(record, _STEP)
    return statistics.linear_regression(steps / steps[-1], curve(record, _COSINE)).slope


def lead(name: str, over: str) -> Quantity:
    """Return how much nearer an estimator is to the exact gradient than another, on average."""
    one, other = (f"precision/{estimator}/cosine" for estimator in (name, over))
    return Quantity(lambda run, _: float((curve(run, one) - curve(run, other)).mean()))


def _at_end(name: str, minus: float = 0.0) -> Quantity:
    return Quantity(lambda run, _: float(curve(run, name)[-1]) - minus)


def _result(of: Callable[[Record, Record], float], **options: Any) -> Quantity:
    return Quantity(of, is_result=True, has_margin=True, decimals=2, **options)


QUANTITIES: dict[str, Quantity] = {
    "last": _result(lambda run, _: in_points(run, run.result.last)),
    "best": _result(lambda run, _: in_points(run, run.result.best), trained_by="best"),
    "at_equal_evaluations": _result(_at_equal_evaluations),
    "diverged": Quantity(lambda run, _: float(bool(run.diverged))),
    "train_loss_last": Quantity(
        lambda run, _: 100 * float(curve(run, "train/loss")[-1]), has_margin=True, decimals=2
    ),
    "cosine_min": Quantity(lambda run, _: float(curve(run, _COSINE).min())),
    "cosine_slope": Quantity(_cosine_slope),
    "lead_preconditioned": lead("preconditioned_m5", "gmres_m5"),
    "lead_over_phantom": lead("preconditioned_m5", "npg_k5_d0.5"),
    "radius_last": _at_end(_RADIUS),
    "radius_above_1": _at_end(_RADIUS, minus=1.0),
    "damped_radius_above_1": _at_end(_DAMPED, minus=1.0),
    "nearing_npg": Quantity(lambda run, _: float(curve(run, _TO_NPG)[-1] - curve(run, _TO_NPG)[0])),
}
"""By their names in ``claims.yaml``; an extension adds its own."""
