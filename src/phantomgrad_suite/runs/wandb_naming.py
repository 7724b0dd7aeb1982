"""Runs on wandb: their names, the same for a logged run and one rebuilt from its record."""

import hashlib
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.identity import table_of
from phantomgrad_suite.runs.metrics import metric_of

_BY_EPOCH = ("train", "test", "validation", "gradient", "solver", "adjoint", "seconds")
_LONGEST_TAG, _LONGEST_NAME = 64, 128  # characters


def names(row: str, instance: str, dataset: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of ``wandb.init`` that name a run.

    Its id is one of this machine: the same run of another machine is not overwritten. Its name has
    the last part of the row, which tells the points of a sweep apart, and the ``changes``.
    """
    place = f"{row}/{instance}@{platform.node()}"
    changed = f": {', '.join(changes)}" if changes else ""
    return {
        "id": hashlib.sha256(place.encode()).hexdigest()[:16],
        "group": row,
        "name": f"{row.rpartition('/')[2]} {instance} on {dataset}{changed}"[:_LONGEST_NAME],
        "tags": [t for t in dict.fromkeys((table_of(row), row)) if 0 < len(t) <= _LONGEST_TAG],
        "config": {"table": table_of(row), "row": row, "instance": instance},
    }


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
    *,
    group: str,
    name: str,
    changes: Sequence[str],
    dataset: str,
    metric: str,
    save_dir: str,
    offline: bool = False,
    **options: Any,
) -> Any:
    """Return a ``WandbLogger`` that continues the curves of a resumed run, also on another machine.

    A run that is still open in this process is finished first. ``group`` is the row, ``name`` the
    instance; ``options`` of :class:`~lightning.pytorch.loggers.WandbLogger` take precedence.
    """
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    if wandb.run is not None:
        wandb.finish()
    named = names(group, name, dataset, changes)
    for earlier in Path(save_dir, "wandb").glob("*run-*-*"):
        named["id"] = earlier.name.rpartition("-")[2]
    logger = WandbLogger(**{**named, "save_dir": save_dir, "offline": offline, **options})
    define_metrics(logger.experiment, metric)
    return logger
