"""The quantities of a run that claims compare, as the header of ``results/claims.yaml`` names them.

Where it leaves a choice: training time is that of the steps, without evaluation; the mean step and
the median time of f are those of the epochs that do not begin with pretraining; the cosine is that
of UPG with k = 5 and λ = 0.5, and its slope is fitted by least squares to the step divided by the
last step, so it is the change over the training. Leads of reasoners are mean differences of cosines
over the measured steps, and residuals common logarithms at the last one.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from phantomgrad_suite.report.experiments.runs import step_in_f
from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record

_COSINE, _STEP = "precision/upg_k5_d0.5/cosine", "precision/step"
_RADIUS, _SECONDS = "precision/spectral_radius/F", "seconds/step_cpu"


class Quantity(NamedTuple):
    """A number ``of`` a run, given the run that it is compared with; NaN if it is not finite."""

    of: Callable[[Record, Record], float]
    has_margin: bool = True  # it is in points or percent, as the margin
    is_time: bool = False
    on_one_machine: bool = False

    def can_compare(self, a: Record, b: Record) -> bool:
        """Return whether both runs have it: seconds compare on one machine only."""
        return not self.on_one_machine or len(_machines(a) | _machines(b)) == 1


def metric_of_run(record: Record) -> Metric:
    """Return the metric of a run's result."""
    return metric_of(record.result.metric, record.result.mode)


def is_logarithm(record: Record, quantity: Quantity) -> bool:
    """Return whether values of ``quantity`` are 100 times a logarithm."""
    is_perplexity = quantity.has_margin and record.result.metric == "perplexity"
    return quantity.is_time or is_perplexity


def _in_points(record: Record, value: Any) -> float:
    if record.result.metric == "perplexity":
        return 100 * float(np.log(float(value)))
    return float(value) * metric_of_run(record).scale


def _curve(record: Record, name: str) -> Any:
    return np.asarray(record.curves[name], dtype=float)  # NaN in the place of None


def _log_step_time(record: Record, _: Record) -> float:
    step = step_in_f(record)
    return math.nan if step is None else 100 * math.log(step)


def _machines(record: Record) -> set[tuple[Any, Any]]:
    """Return processor and threads of all attempts."""
    attempts = [record.environment, *record.environment.get("earlier", ())]
    return {(attempt.get("processor"), attempt.get("threads")) for attempt in attempts}


def _at_equal_time(record: Record, other: Record) -> float:
    """Return the metric at the last epoch that ends within the training time of ``other``."""
    ends, others = _curve(record, _SECONDS).cumsum(), _curve(other, _SECONDS).cumsum()
    finished = _curve(record, metric_of_run(record).curve)[ends <= others[-1]]
    return _in_points(record, finished[-1] if finished.size else math.nan)


def _cosine_slope(record: Record, _: Record) -> float:
    steps = _curve(record, _STEP)
    return statistics.linear_regression(steps / steps[-1], _curve(record, _COSINE)).slope


def _lead(name: str, over: str) -> Quantity:
    """Return how much nearer an estimator is to the exact gradient than another, on average."""
    one, other = (f"precision/{estimator}/cosine" for estimator in (name, over))
    return Quantity(
        lambda run, _: float((_curve(run, one) - _curve(run, other)).mean()), has_margin=False
    )


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


QUANTITIES: Mapping[str, Quantity] = {
    "last": Quantity(lambda run, _: _in_points(run, run.result.last)),
    "best": Quantity(lambda run, _: _in_points(run, run.result.best)),
    "log_step_time": Quantity(_log_step_time, is_time=True),
    "at_equal_time": Quantity(_at_equal_time, on_one_machine=True),
    "cosine_min": Quantity(lambda run, _: float(_curve(run, _COSINE).min()), has_margin=False),
    "cosine_slope": Quantity(_cosine_slope, has_margin=False),
    "lead_recursion": _lead("last_7", "last_2"),
    "lead_npg": _lead("npg_k3_d0.5", "last_2"),
    "lead_preconditioned": _lead("preconditioned_m5", "gmres_m5"),
    "lead_over_phantom": _lead("preconditioned_m5", "npg_k5_d0.5"),
    "residual_log": Quantity(_log_residual, has_margin=False),
    "residual_fall": Quantity(_residual_fall, has_margin=False),
    "residual_order": Quantity(
        lambda run, _: float(_curve(run, "precision/residual_order")[-1]), has_margin=False
    ),
    "radius_last": Quantity(lambda run, _: float(_curve(run, _RADIUS)[-1]), has_margin=False),
}
"""By their names in ``claims.yaml``."""
