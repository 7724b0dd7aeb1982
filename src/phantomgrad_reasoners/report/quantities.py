"""The quantities of recursive, looped and Attractor models that claims compare.

Residuals are common logarithms at the last measured step.
"""

import itertools

import numpy as np

from phantomgrad_suite.report.claims.quantities import Quantity, curve, in_points, lead
from phantomgrad_suite.report.frame import metric_of_run
from phantomgrad_suite.runs.records import Record


def _without_solver(record: Record, _: Record) -> float:
    without, with_solver = (curve(record, f"test/perplexity{at}")[-1] for at in ("_without", ""))
    return 100 * float(np.log(without / with_solver))


def _gain_of_segments(record: Record, _: Record) -> float:
    many, trained = (curve(record, f"test/exact_accuracy{at}")[-1] for at in ("_at_64", ""))
    return 100 * float(many - trained)


def _lost(n: int) -> Quantity:
    """Return how much worse the last epoch's model is with n times its segments in evaluation."""

    def of(record: Record, _: Record) -> float:
        name = f"{metric_of_run(record).curve}_at_{n * record.config['task'].get('segments', 1)}"
        rise = in_points(record, curve(record, name)[-1]) - in_points(record, record.result.last)
        return -rise if metric_of_run(record).higher_is_better else rise

    return Quantity(of, is_change=True, has_margin=True, decimals=2)


def _log_residual(record: Record, _: Record) -> float:
    """Return how far the last segment's residual is above 1 %."""
    return _log_residuals(record)[-1] + 2


def _residual_fall(record: Record, _: Record) -> float:
    values = _log_residuals(record)
    return values[-1] - values[0]


def _log_residuals(record: Record) -> list[float]:
    names = (f"precision/segment{n}/residual" for n in itertools.count(1))
    known = itertools.takewhile(record.curves.__contains__, names)
    return [float(np.log10(curve(record, name)[-1])) for name in known]


QUANTITIES = {
    "without_solver": Quantity(_without_solver, is_change=True, has_margin=True, decimals=2),
    "gain_of_segments": Quantity(_gain_of_segments, decimals=2),
    "lost_at_2x": _lost(2),
    "lost_at_4x": _lost(4),
    "lead_recursion": lead("last_7", "last_2"),
    "lead_npg": lead("npg_k3_d0.5", "last_2"),
    "residual_log": Quantity(_log_residual),
    "residual_fall": Quantity(_residual_fall),
    "residual_order": Quantity(lambda run, _: float(curve(run, "precision/residual_order")[-1])),
}
