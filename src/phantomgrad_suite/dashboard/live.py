"""What the live page shows: the tables and their runs as their files say at this moment."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from phantomgrad_suite.dashboard.curves import latest, logged, thinned
from phantomgrad_suite.dashboard.plan import expected, tables
from phantomgrad_suite.runs.records import Record, RecordError, read_any
from phantomgrad_suite.runs.status import STATES, Run, examine, look_again, run_folders, standing

BESIDE = "in no table"
_LATELY = 4  # finished runs that are shown one by one
_DRAWN = ("test/", "validation/", "train/loss")
_QUIET = ("train/loss", "validation/loss")


@dataclass(frozen=True)
class Places:
    """The folders that the page looks at.

    Args:
        configs: the configuration files, which say which runs there are to be.
        runs: the run folders.
        records: the records of finished rows.
    """

    configs: Path
    runs: Path
    records: Path


def snapshot(places: Places) -> dict[str, Any]:
    """Return the state of all tables, as plain as JSON; nothing is written and no run disturbed.

    ``runs`` are those that go on, failed, stopped or were finished lately, newest first; ``tables``
    count the runs of each row by state, the table that was last heard of first.
    """
    look_again()
    found = _examined(places)
    runs = [run for group in found.values() for run in group]
    shown = [_shown(run, places) for run in runs if run.state in ("running", "failed", "stopped")]
    shown += _lately([run for run in runs if run.state == "done"], places)
    shown.sort(key=lambda run: -run["heard"])
    ages = _ages(runs, places)
    listed = [_table(name, group, ages) for name, group in found.items()]
    return {
        "at": time.time(),
        "folder": str(places.runs.absolute()),
        "states": _counts(runs),
        "runs": shown,
        "tables": sorted(listed, key=lambda table: -table["heard"]),
    }


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return a snapshot as JSON."""
    return json.dumps(content, allow_nan=False).encode()


def _examined(places: Places) -> dict[str, list[Run]]:
    planned = {name: expected(places.configs, name) for name in tables(places.configs)}
    listed = {run for group in planned.values() for run in group}
    planned[BESIDE] = sorted(set(run_folders(places.runs)) - listed)
    return {
        name: [examine(row, instance, places.runs, places.records) for row, instance in group]
        for name, group in planned.items()
        if group
    }


def _counts(runs: Iterable[Run]) -> dict[str, int]:
    counts = Counter(run.state for run in runs)
    return {state: counts[state] for state in STATES}


def _table(name: str, group: Sequence[Run], ages: Mapping[Run, float]) -> dict[str, Any]:
    rows: dict[str, list[Run]] = {}
    for run in group:
        rows.setdefault(run.row, []).append(run)
    lines: list[dict[str, Any]] = [
        {"row": row, "states": _counts(runs), "heard": max(ages[run] for run in runs)}
        for row, runs in rows.items()
    ]
    heard = max(ages[run] for run in group)
    lines.sort(key=lambda line: -line["heard"])
    return {"table": name, "states": _counts(group), "heard": heard, "rows": lines}


def _ages(runs: Iterable[Run], places: Places) -> dict[Run, float]:
    """Return when each run was last heard of; 0 of one that is missing, or published only."""
    return {run: _heard(run, places) for run in runs}


def _heard(run: Run, places: Places) -> float:
    folder = places.runs / run.row / run.instance
    if run.state == "missing" or not folder.is_dir():
        return 0.0
    if run.state == "done":
        return _modified(folder / "record.json")
    return standing(folder, places.runs).heard


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _shown(run: Run, places: Places) -> dict[str, Any]:
    folder = places.runs / run.row / run.instance
    stands, curves = standing(folder, places.runs), logged(folder)
    done = max((len(curve) for curve in curves.values()), default=0)
    return {
        **asdict(run),
        "detail": run.detail if run.state == "failed" else "",
        **asdict(stands),
        "epochs": stands.epochs if isinstance(stands.epochs, int) else None,
        "done_epochs": max(done, (stands.epoch or 1) - 1),
        "result": None,
        **_drawn(curves),
    }


def _lately(done: Iterable[Run], places: Places) -> list[dict[str, Any]]:
    """Return the last of the runs that were finished here."""
    aged = [(_heard(run, places), run) for run in done]
    newest = sorted((pair for pair in aged if pair[0]), key=lambda pair: -pair[0])[:_LATELY]
    return [shown for heard, run in newest if (shown := _finished(run, heard, places))]


def _finished(run: Run, heard: float, places: Places) -> dict[str, Any] | None:
    record = _record(places.runs / run.row / run.instance / "record.json", heard)
    if record is None:
        return None
    epochs = max((len(curve) for curve in record.curves.values()), default=0)
    result = asdict(record.result)
    own = {"epoch": epochs, "epochs": epochs, "done_epochs": epochs, "heard": heard, "where": ""}
    return {**asdict(run), **own, "result": result, **_drawn(record.curves)}


@lru_cache(maxsize=64)
def _record(path: Path, modified: float) -> Record | None:
    """Return the record of a run, read once; nothing of a study or of what cannot be read."""
    with suppress(RecordError):
        record = read_any(path)
        return record if isinstance(record, Record) else None
    return None


def _drawn(curves: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """Return the latest numbers of all curves, and the two that say the most as drawings."""
    numbers = latest(curves)
    tested = [name for name in numbers if name.startswith(_DRAWN) and name not in _QUIET]
    chosen = [*sorted(tested)[:1], *(name for name in _QUIET[:1] if name in numbers)]
    drawings = [{"name": name, "values": thinned(curves[name])} for name in chosen]
    return {"latest": numbers, "curves": drawings}
