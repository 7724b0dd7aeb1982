"""The state of all runs as JSON for the live page, with the curves of current runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from phantomgrad_suite.dashboard.plan import Groups, Places, by_row, count, snapshot
from phantomgrad_suite.runs.records import Record, RecordError, read_any
from phantomgrad_suite.runs.status import Run, age

_RECENT = 4  # finished runs that are shown one by one
_POINTS = 160  # of a drawn curve


def live_state(places: Places) -> dict[str, Any]:
    """Return what the page shows, the latest first.

    ``runs`` are those that are running, failed, stopped or finished recently; ``tables`` hold the
    number of runs in each state, by row.
    """
    groups = snapshot(places)
    runs = sorted((run for group in groups.values() for run in group), key=lambda r: -r.updated)
    recent = [run for run in runs if run.state == "done" and run.updated][:_RECENT]
    current = [run for run in runs if run.state in ("running", "failed", "stopped")]
    tables = _summaries(groups)
    for table in tables:
        table["rows"] = _summaries(by_row(groups[table["name"]]))
    return {
        "at": time.time(),
        "folder": str(places.runs.absolute()),
        "states": count(runs),
        "runs": [_entry(run, places.runs / run.row / run.instance) for run in current + recent],
        "tables": tables,
    }


def _summaries(groups: Groups) -> list[dict[str, Any]]:
    """Return name, number of runs by state and last update of each group, the latest first."""
    latest = {name: max(run.updated for run in runs) for name, runs in groups.items()}
    return [
        {
            "name": name,
            "states": count(groups[name]),
            "updated": age(latest[name]) if latest[name] else "—",
        }
        for name in sorted(groups, key=lambda name: -latest[name])
    ]


def _entry(run: Run, folder: Path) -> dict[str, Any]:
    curves, text = _content(run, folder)
    known = {name: [v for v in curve if v is not None] for name, curve in curves.items()}
    known = {name: values for name, values in known.items() if values}
    evaluated = sorted(name for name in known if name.startswith(("test/", "validation/")))
    return {
        "row": run.row,
        "instance": run.instance,
        "state": run.state,
        "text": text,
        "error": run.error,
        "epoch": run.epoch or 0,
        "epochs": run.epochs,
        "latest": {name: f"{values[-1]:.4g}" for name, values in known.items()},
        "curves": [
            {
                "name": name,
                "range": f"{min(known[name]):.4g} to {max(known[name]):.4g}",
                "values": curves[name][:: len(curves[name]) // _POINTS + 1],
            }
            for name in (*evaluated[:1], "train/loss")
            if name in known
        ],
    }


def _content(run: Run, folder: Path) -> tuple[Mapping[str, Sequence[float | None]], str]:
    """Return the curves of a run, and its progress or its result as text."""
    if run.state != "done":
        names = sorted({name for metrics in run.log.values() for name in metrics})
        curves = {name: [metrics.get(name) for metrics in run.log.values()] for name in names}
        return curves, f"{run.progress} ({run.host})"
    with suppress(RecordError):
        record = read_any(folder / "record.json")
        if isinstance(record, Record):
            result = record.result
            best, last = (math.nan if v is None else v for v in (result.best, result.last))
            text = f"{result.metric} best {best:.4g} (epoch {result.best_epoch}), last {last:.4g}"
            return record.curves, f"{text}, {age(run.updated)}"
    return {}, f"finished {age(run.updated)}"
