"""Loggers beside Lightning's own: wandb with a stable identity, so that a resumed run goes on."""

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
    *,
    group: str,
    name: str,
    save_dir: str,
    metric: str | None = None,
    reduced: Sequence[str] = (),
    **settings: Any,
) -> WandbLogger:
    """Return a logger whose run id is made of row and instance: resuming continues its curves.

    Runs are grouped by row and tagged by table and row. Curves are by epoch; of the test metric
    the best value counts. A run still open in this process is ended: of the runs of a table, each
    has its own.

    Args:
        group: the row.
        name: the instance.
        save_dir: the run folder.
        metric: the number that the tables print.
        reduced: what the row reduces against the full protocol, in words.
        settings: of Lightning's logger.

    Raises:
        UserError: wandb is not installed.
    """
    place = {"table": table_of(group), "row": group, "instance": name}
    known = {"tags": tags(group), "config": {**place, "protocol": protocol(reduced, name)}}
    try:
        import wandb

        if wandb.run is not None:
            wandb.finish()
        logger = WandbLogger(
            name=name,
            group=group,
            id=run_id(group, name),
            save_dir=save_dir,
            reinit="finish_previous",
            **{**known, **settings},
        )
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=wandb needs the package wandb: install it (`make env`), or use logger=csv"
        ) from error
    define_metrics(logger.experiment, metric)
    return logger
