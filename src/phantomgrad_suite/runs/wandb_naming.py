"""Runs on wandb: their names, the same for a logged run and one rebuilt from its record."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.metrics import metric_of

if TYPE_CHECKING:
    from lightning.pytorch.loggers import WandbLogger

_BY_EPOCH = ("train", "test", "validation", "gradient", "collapse", "solver", "adjoint", "seconds")
_LONGEST_TAG = 64  # characters


def names(row: str, instance: str, dataset: str) -> dict[str, Any]:
    """Return the arguments of ``wandb.init`` that name a run; its id stays when it is resumed."""
    return {
        "id": hashlib.sha256(f"{row}/{instance}".encode()).hexdigest()[:16],
        "group": row,
        "name": f"{instance} on {dataset}",
        "tags": [t for t in dict.fromkeys((table_of(row), row)) if 0 < len(t) <= _LONGEST_TAG],
        "config": {"table": table_of(row), "row": row, "instance": instance},
    }


def table_of(row: str) -> str:
    """Return the table of a row: the first part of its name without the scale."""
    return split_row(row)[1].partition("/")[0]


def define_metrics(run: Any, metric: str, mode: str | None = None) -> None:
    """Make the epoch the axis of all curves, and the best value of the test metric its summary.

    ``mode`` is ``max`` or ``min``, by default that of the metric in the tables.
    """
    best = mode or ("max" if metric_of(metric).higher_is_better else "min")
    run.define_metric("epoch", hidden=True)
    for name in (*(f"{group}/*" for group in _BY_EPOCH), "spectral_radius"):
        run.define_metric(name, step_metric="epoch")
    run.define_metric(f"test/{metric}", step_metric="epoch", summary=f"{best},last")


def wandb_logger(
    *, group: str, name: str, dataset: str, metric: str, **options: Any
) -> WandbLogger:
    """Return a logger with a stable run id: a resumed run continues its curves.

    A run that is still open in this process is finished first. ``group`` is the row, ``name`` the
    instance; ``options`` of :class:`~lightning.pytorch.loggers.WandbLogger` take precedence.
    """
    try:
        import wandb
        from lightning.pytorch.loggers import WandbLogger
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=wandb needs the package wandb: install it (`make env`), or leave out logger="
        ) from error
    if wandb.run is not None:
        wandb.finish()
    logger = WandbLogger(**{**names(group, name, dataset), **options})
    define_metrics(logger.experiment, metric)
    return logger
