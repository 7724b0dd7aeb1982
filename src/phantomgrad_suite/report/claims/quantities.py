"""The quantities of a run that claims compare, as the header of ``results/claims.yaml`` names them.

Where it leaves a choice: evaluations of f are those of all training steps; the cosine is that of
UPG with k = 5 and λ = 0.5, and its slope is fitted by least squares to the step divided by the last
step, so it is the change over the training. Leads are mean differences of cosines over the measured
steps, and residuals common logarithms at the last one.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from phantomgrad_suite.report.frame import evaluations, metric_of_run
from phantomgrad_suite.runs.records import Record

_COSINE, _STEP = "precision/upg_k5_d0.5/cosine", "precision/step"
_RADIUS = "precision/spectral_radius/F"


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


def _in_points(record: Record, value: Any) -> float:
    if record.result.metric == "perplexity":
        return 100 * float(np.log(float(value)))
    return float(value) * metric_of_run(record).scale


def _curve(record: Record, name: str) -> Any:
    return np.asarray(record.curves[name], dtype=float)  # NaN in the place of None


def _at_equal_evaluations(record: Record, other: Record) -> float:
    """Return the metric at the last epoch with a test value within the evaluations of ``other``."""
    tested = _curve(record, metric_of_run(record).curve)
    spent = evaluations(record) <= evaluations(other)[-1]
    found = tested[spent & ~np.isnan(tested)]
    return _in_points(record, found[-1]) if found.size else math.nan


def _without_solver(record: Record, _: Record) -> float:
    without, with_solver = (_curve(record, f"test/perplexity{at}")[-1] for at in ("_without", ""))
    return 100 * float(np.log(without / with_solver))


def _gain_of_segments(record: Record, _: Record) -> float:
    many, trained = (_curve(record, f"test/exact_accuracy{at}")[-1] for at in ("_at_64", ""))
    return 100 * float(many - trained)


def _change(of: Callable[[Record, Record], float]) -> Quantity:
    return Quantity(of, is_change=True, has_margin=True, decimals=2)


def _lost(n: int) -> Quantity:
    """Return how much worse the last epoch's model is with n times its segments in evaluation."""

    def of(record: Record, _: Record) -> float:
        name = f"{metric_of_run(record).curve}_at_{n * record.config['task'].get('segments', 1)}"
        rise = _in_points(record, _curve(record, name)[-1]) - _in_points(record, record.result.last)
        return -rise if metric_of_run(record).higher_is_better else rise

    return _change(of)


def _cosine_slope(record: Record, _: Record) -> float:
    steps = _curve(record, _STEP)
    return statistics.linear_regression(steps / steps[-1], _curve(record, _COSINE)).slope


def _lead(name: str, over: str) -> Quantity:
    """Return how much nearer an estimator is to the exact gradient than another, on average."""
    one, other = (f"precision/{estimator}/cosine" for estimator in (name, over))
    return Quantity(lambda run, _: float((_curve(run, one) - _curve(run, other)).mean()))


def _log_residual(record: Record, _: Record) -> float:
    """Return how far the last segment's residual is above 1 %."""
    return _log_residuals(record)[-1] + 2


def _residual_fall(record: Record, _: Record) -> float:
    values = _log_residuals(record)
    return values[-1] - values[0]


def _log_residuals(record: Record) -> list[float]:
    names = (f"precision/segment{n}/residual" for n in itertools.count(1))
    known = itertools.takewhile(record.curves.__contains__, names)
    return [float(np.log10(_curve(record, name)[-1])) for name in known]


def _result(of: Callable[[Record, Record], float], **options: Any) -> Quantity:
    return Quantity(of, is_result=True, has_margin=True, decimals=2, **options)


QUANTITIES: Mapping[str, Quantity] = {
    "last": _result(lambda run, _: _in_points(run, run.result.last)),
    "best": _result(lambda run, _: _in_points(run, run.result.best), trained_by="best"),
    "at_equal_evaluations": _result(_at_equal_evaluations),
    "train_loss_last": Quantity(
        lambda run, _: 100 * float(_curve(run, "train/loss")[-1]), has_margin=True, decimals=2
    ),
    "without_solver": _change(_without_solver),
    "gain_of_segments": Quantity(_gain_of_segments, decimals=2),
    "lost_at_2x": _lost(2),
    "lost_at_4x": _lost(4),
    "cosine_min": Quantity(lambda run, _: float(_curve(run, _COSINE).min())),
    "cosine_slope": Quantity(_cosine_slope),
    "lead_recursion": _lead("last_7", "last_2"),
    "lead_npg": _lead("npg_k3_d0.5", "last_2"),
    "lead_preconditioned": _lead("preconditioned_m5", "gmres_m5"),
    "lead_over_phantom": _lead("preconditioned_m5", "npg_k5_d0.5"),
    "residual_log": Quantity(_log_residual),
    "residual_fall": Quantity(_residual_fall),
    "residual_order": Quantity(lambda run, _: float(_curve(run, "precision/residual_order")[-1])),
    "radius_last": Quantity(lambda run, _: float(_curve(run, _RADIUS)[-1])),
}
"""By their names in ``claims.yaml``."""
