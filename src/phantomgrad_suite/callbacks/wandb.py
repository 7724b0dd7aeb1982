"""Logging to wandb, with a stable run id: a resumed run continues its curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning.pytorch.loggers import WandbLogger

from phantomgrad_suite.callbacks.wandb_naming import (
    define_metrics,
    protocol,
    run_id,
    table_of,
    tags,
)
from phantomgrad_suite.runs.errors import UserError


def wandb_logger(
    *, group: str, name: str, metric: str | None = None, reduced: Sequence[str] = (), **options: Any
) -> WandbLogger:
    """Return a logger whose runs are grouped by row, and tagged by table and row.

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
    place = {"table": table_of(group), "row": group, "instance": name}
    config = {**place, "protocol": protocol(reduced, name)}
    defaults = {"tags": tags(group), "config": config, "reinit": "finish_previous"}
    try:
        import wandb

        if wandb.run is not None:
            wandb.finish()
        logger = WandbLogger(
            name=name, group=group, id=run_id(group, name), **{**defaults, **options}
        )
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=wandb needs the package wandb: install it (`make env`), or use logger=csv"
        ) from error
    define_metrics(logger.experiment, metric)
    return logger
