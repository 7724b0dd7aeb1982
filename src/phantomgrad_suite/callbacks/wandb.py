"""Logging to wandb, with a stable run id: a resumed run continues its curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning.pytorch.loggers import WandbLogger

from phantomgrad_suite.runs import wandb_naming as naming
from phantomgrad_suite.runs.errors import UserError


def wandb_logger(
    *, group: str, name: str, metric: str | None = None, reduced: Sequence[str] = (), **options: Any
) -> WandbLogger:
    """Return a logger whose runs are grouped by row, and tagged by table and row.

    A run that is still open in this process is finished first.

    Args:
        group, name: the row and the instance.
        metric: the metric that the tables report.
        reduced: reductions of the row against the full protocol.
        options: of :class:`lightning.pytorch.loggers.WandbLogger`; they take precedence.
    """
    place = {"table": naming.table_of(group), "row": group, "instance": name}
    config = {**place, "protocol": naming.protocol(reduced, name)}
    settings = {"tags": naming.tags(group), "config": config, "reinit": "finish_previous"} | options
    try:
        import wandb

        if wandb.run is not None:
            wandb.finish()
        logger = WandbLogger(name=name, group=group, id=naming.run_id(group, name), **settings)
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=wandb needs the package wandb: install it (`make env`), or use logger=csv"
        ) from error
    naming.define_metrics(logger.experiment, metric)
    return logger
