"""Runs of wandb, made again from their records: as often as wanted, always the same ones."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phantomgrad_suite.callbacks.wandb_naming import AXIS, define_metrics, run_id, table_of, tags
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record

_PRECISION, _STEP = "precision/", "precision/step"


def wandb_module() -> Any:
    """Return wandb.

    Raises:
        UserError: it is not installed.
    """
    try:
        import wandb
    except ModuleNotFoundError as error:
        raise UserError("this needs the package wandb: install it (`make env`)") from error
    return wandb


@contextmanager
def said_in_a_line(wandb: Any) -> Iterator[None]:
    """Turn what wandb refuses, or fails by, into a :class:`UserError`."""
    try:
        yield
    except wandb.Error as error:
        raise UserError(f"wandb: {str(error).strip().splitlines()[0]}") from error


def rebuild(
    record: Record, folder: Path, *, project: str, entity: str | None = None, online: bool = False
) -> None:
    """Make the run of a record: its curves by epoch, its configuration, and what came out.

    The id is that of the logger, so that a run that has been logged or rebuilt before is replaced.

    Args:
        record: of a finished run.
        folder: where wandb keeps its files; what it has of this run there is removed first.
        project: of wandb.
        entity: the user or team there; ``None`` for the default one.
        online: send it at once; else ``wandb sync`` does, from the files.

    Raises:
        UserError: wandb is not installed, or refuses.
    """
    wandb = wandb_module()
    digest = run_id(record.row, record.instance)
    for old in (folder / "wandb").glob(f"*run-*-{digest}"):
        shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    with said_in_a_line(wandb):
        run = wandb.init(
            project=project,
            entity=entity,
            id=digest,
            group=record.row,
            name=record.instance,
            job_type=record.config.get("run", {}).get("gradient"),
            tags=tags(record.row),
            config=_config(record),
            dir=str(folder),
            mode="online" if online else "offline",
            reinit="finish_previous",
            settings=_settings(wandb),
        )
        define_metrics(run, record.result.metric, record.result.mode)
        run.define_metric(f"{_PRECISION}*", step_metric=_STEP)
        for values in history(record):
            run.log(values)
        run.summary.update(summary(record))
        run.finish()


def history(record: Record) -> Iterator[dict[str, float]]:
    """Return the values of every epoch, from 0 as the logger counts; then what is by steps."""
    by_step = {name: c for name, c in record.curves.items() if name.startswith(_PRECISION)}
    by_epoch = {name: c for name, c in record.curves.items() if name not in by_step}
    for epoch in range(_length(by_epoch)):
        yield {AXIS: epoch, **_values_at(by_epoch, epoch)}
    for point in range(_length(by_step)):
        yield _values_at(by_step, point)


def summary(record: Record) -> dict[str, Any]:
    """Return what came out of a run, and what it took."""
    return {
        "metric": record.result.metric,
        **{key: v for key, v in asdict(record.result).items() if isinstance(v, int | float)},
        **{f"parameters/{key}": value for key, value in record.parameters.items()},
        **{f"cost/seconds_{key}": value for key, value in record.seconds.items()},
        **{f"solver_mean/{key}": value for key, value in record.solver.items()},
        **{f"cost/memory_{key}": value for key, value in record.memory.items()},
    }


def _config(record: Record) -> dict[str, Any]:
    """Return the configuration, and what says which run of what this is."""
    return {
        **record.config,
        "table": table_of(record.row),
        "row": record.row,
        "instance": record.instance,
        "label": record.label,
        "protocol": record.protocol,
        "changes": record.changes,
        "config_hash": record.config_hash,
        "data": record.data,
        "environment": record.environment,
        "started": record.started,
        "finished": record.finished,
    }


def _settings(wandb: Any) -> Any:
    """Return settings by which wandb looks at the record alone, not at this machine."""
    return wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )


def _length(curves: dict[str, list[float]]) -> int:
    return max(map(len, curves.values()), default=0)


def _values_at(curves: dict[str, list[float]], position: int) -> dict[str, float]:
    found = {name: curve[position] for name, curve in curves.items() if position < len(curve)}
    return {name: v for name, v in found.items() if v is not None and math.isfinite(v)}
