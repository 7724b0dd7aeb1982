"""What a run is called on wandb: the same whether it is logged there or rebuilt from its record."""

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
_CHANGED = re.compile(r"-[0-9a-f]{8}$")


def run_id(row: str, instance: str) -> str:
    """Return the id of a run: resumed or rebuilt, it is the same one."""
    return hashlib.sha256(f"{row}/{instance}".encode()).hexdigest()[:16]


def table_of(row: str) -> str:
    """Return the table of a row: the first part of its name."""
    return row.partition("/")[0]


def tags(row: str) -> list[str]:
    """Return table and row, as far as they are short enough."""
    return [tag for tag in dict.fromkeys((table_of(row), row)) if 0 < len(tag) <= _LONGEST_TAG]


def protocol(reduced: Sequence[str], instance: str) -> str:
    """Return what is known of the protocol before a run: ``full`` unless it says otherwise."""
    return "reduced" if reduced or _CHANGED.search(instance) else "full"


def define_metrics(run: Any, metric: str | None, mode: str | None = None) -> None:
    """Tell a run of wandb its axis, the epoch, and that its best test value counts.

    Args:
        run: of wandb.
        metric: the number that the tables print; ``None`` where it is not known.
        mode: which end of it is the good one; ``None``: as tables print it.
    """
    run.define_metric(AXIS, hidden=True)
    for name in BY_EPOCH:
        run.define_metric(name, step_metric=AXIS)
    if metric is not None:
        best = mode or ("max" if metric_of(metric).higher_is_better else "min")
        run.define_metric(f"test/{metric}", step_metric=AXIS, summary=f"{best},last")
