"""Names of runs on wandb, the same for a logged run and one rebuilt from its record."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from phantomgrad_suite.runs.metrics import metric_of

AXIS = "epoch"
BY_EPOCH = (
    *("train/*", "test/*", "validation/*", "gradient/*", "collapse/*"),
    *("solver/*", "adjoint/*", "seconds/*", "spectral_radius"),
)
_LONGEST_TAG = 64  # characters
_CHANGED = re.compile(r"-[0-9a-f]{8}$")  # the hash in an instance that differs from its row


def run_id(row: str, instance: str) -> str:
    """Return the id of a run, the same whenever it is resumed or rebuilt."""
    return hashlib.sha256(f"{row}/{instance}".encode()).hexdigest()[:16]


def table_of(row: str) -> str:
    """Return the table of a row: the first part of its name."""
    return row.partition("/")[0]


def tags(row: str) -> list[str]:
    """Return the table and the row, unless too long for a tag."""
    return [tag for tag in dict.fromkeys((table_of(row), row)) if 0 < len(tag) <= _LONGEST_TAG]


def protocol(reduced: Sequence[str], instance: str) -> str:
    """Return the protocol of a run that has not started: ``full`` or ``reduced``."""
    return "reduced" if reduced or _CHANGED.search(instance) else "full"


def define_metrics(run: Any, metric: str | None, mode: str | None = None) -> None:
    """Make the epoch the axis of all curves and the best test value the summary of a run.

    Args:
        run: of wandb.
        metric: the metric that tables report, ``None`` where it is unknown.
        mode: whether its ``max`` or ``min`` is the best, ``None`` for that of the tables.
    """
    run.define_metric(AXIS, hidden=True)
    for name in BY_EPOCH:
        run.define_metric(name, step_metric=AXIS)
    if metric is not None:
        best = mode or ("max" if metric_of(metric).higher_is_better else "min")
        run.define_metric(f"test/{metric}", step_metric=AXIS, summary=f"{best},last")
