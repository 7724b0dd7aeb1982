"""Loggers beside Lightning's own: wandb with a stable identity, so that a resumed run goes on."""

from __future__ import annotations

import hashlib
from typing import Any

from lightning.pytorch.loggers import WandbLogger

from phantomgrad.errors import UserError


def wandb_logger(*, group: str, name: str, save_dir: str, **settings: Any) -> WandbLogger:
    """Return a logger whose run id is made of row and instance: resuming continues its curves.

    A run still open in this process is ended: of the runs of a table, each has its own.

    Raises:
        UserError: wandb is not installed.
    """
    digest = hashlib.sha256(f"{group}/{name}".encode()).hexdigest()[:16]
    try:
        import wandb

        if wandb.run is not None:
            wandb.finish()
        return WandbLogger(
            name=name,
            group=group,
            id=digest,
            save_dir=save_dir,
            reinit="finish_previous",
            **settings,
        )
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=wandb needs the package wandb: install it (`make env`), or use logger=csv"
        ) from error
