"""Runs on wandb: their names, the same for a logged run and one rebuilt from its record.

Lightning is imported by the logger alone, since the dashboard needs the names without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.metrics import metric_of

if TYPE_CHECKING:
    from lightning.pytorch.loggers import WandbLogger

AXIS = "epoch"
_BY_EPOCH = (
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


def define_metrics(run: Any, metric: str | None, mode: str | None = None) -> None:
    """Make the epoch the axis of all curves, and the best value of the test metric its summary.

    ``mode`` is ``max`` or ``min``, by default that of the metric in the tables.
    """
    run.define_metric(AXIS, hidden=True)
    for name in _BY_EPOCH:
        run.define_metric(name, step_metric=AXIS)
    if metric is not None:
        best = mode or ("max" if metric_of(metric).higher_is_better else "min")
        run.define_metric(f"test/{metric}", step_metric=AXIS, summary=f"{best},last")


def wandb_logger(
    *, group: str, name: str, metric: str | None = None, reduced: Sequence[str] = (), **options: Any
) -> WandbLogger:
    """Return a logger with a stable run id: a resumed run continues its curves.

    A run that is still open in this process is finished first.

    Args:
        group: the row.
        name: the instance.
        metric: the metric that the tables report.
        reduced: reductions of the row against the full protocol.
        options: of :class:`lightning.pytorch.loggers.WandbLogger`; they take precedence.

    Raises:
        UserError: wandb is not installed.
    """
    try:
        import wandb
        from lightning.pytorch.loggers import WandbLogger
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=wandb needs the package wandb: install it (`make env`), or use logger=csv"
        ) from error
    protocol = "reduced" if reduced or _CHANGED.search(name) else "full"
    config = {"table": table_of(group), "row": group, "instance": name, "protocol": protocol}
    settings = {"tags": tags(group), "config": config, "reinit": "finish_previous"} | options
    if wandb.run is not None:
        wandb.finish()
    logger = WandbLogger(name=name, group=group, id=run_id(group, name), **settings)
    define_metrics(logger.experiment, metric)
    return logger
