"""``scripts/status.py``: the state of the runs of every table, read from their folders."""

import os
import platform
import time
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.configs import RESULTS
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import ATTEMPT, RunFolder, read_attempt
from phantomgrad_suite.runs.formats import duration
from phantomgrad_suite.runs.plan import expected, tables
from phantomgrad_suite.runs.records import read_json

STATES = ("done", "running", "failed", "stopped", "published", "missing")
_SILENT_SECONDS = 3600


@dataclass(frozen=True)
class Run:
    """A run, its state, and a description of the state."""

    row: str
    instance: str
    state: str
    text: str = ""


def status(arguments: Sequence[str]) -> int:
    """Print the state of the runs of all tables, or of one."""
    parser = ArgumentParser(
        description="The number of runs of each table that are done, running, failed (ended by an "
        "error), stopped (killed or interrupted: the same command resumes them), only published, "
        "and missing.",
        allow_abbrev=False,
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument("--records", type=Path, default=RESULTS / "records", metavar="DIR")
    parser.add_argument(
        "--table", choices=tables(), metavar="NAME", help="only this table, row by row"
    )
    parser.add_argument("--failed", action="store_true", help="only failed runs and their errors")
    options = parser.parse_args(arguments)
    published = Archive(options.records).records.keys()
    groups: dict[str, list[Run]] = defaultdict(list)
    for line, (row, instance) in _listed(options.table, options.runs):
        groups[line].append(examine(row, instance, options.runs, published))
    # Of runs that are done, those with a text: they diverged.
    shown = ["done", "running", *(["failed", "stopped"] if options.table else [])]
    if options.failed:
        shown = ["failed"]
    else:
        _print_counts(groups)
    _print_texts([run for group in groups.values() for run in group], shown)
    return 0


def _listed(table: str | None, folder: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the runs of one table or of all, each with the line that counts it."""
    listed = []
    for name in [table] if table else tables():
        try:
            listed += [(name, run) for run in expected(name)]
        except UserError as error:
            print(f"{name}: its runs cannot be listed: {error}")
    others = sorted(set(run_folders(folder)) - {run for _, run in listed})
    if not table:
        yield from [*listed, *(("in no table", run) for run in others)]
        return
    for row in dict.fromkeys(row for _, (row, _) in listed):
        yield from ((row, run) for _, run in listed if run[0] == row)
        # With other settings or seeds.
        yield from ((" ".join(run), run) for run in others if run[0] == row)


def _print_counts(groups: Mapping[str, Sequence[Run]]) -> None:
    width = max(map(len, groups), default=0)
    print(" " * width, *(f"{title:>8}" for title in ("runs", *STATES)))
    for name, runs in groups.items():
        counts = Counter(run.state for run in runs)
        cells = [len(runs), *(counts[state] or "·" for state in STATES)]
        print(f"{name:<{width}}", *(f"{cell:>8}" for cell in cells))


def _print_texts(runs: Sequence[Run], states: Sequence[str]) -> None:
    """Print the texts of runs in some states, one that several share once."""
    for state in states:
        found = [run for run in runs if run.state == state and run.text]
        for text in dict.fromkeys(run.text for run in found):
            run, *same = (run for run in found if run.text == text)
            more = f" and {len(same)} more" if same else ""
            print(f"{state}: {run.row} {run.instance}{more}: {text}")


def examine(row: str, instance: str, runs: Path, published: Container[tuple[str, str]]) -> Run:
    """Return a run with its state; ``published`` are row and instance of those with a record."""
    folder = runs / row / instance
    note, own = read_attempt(folder), folder / "record.json"
    if own.exists():
        return Run(row, instance, "done", _divergence(own))
    if not (folder / ATTEMPT).exists():
        return Run(row, instance, "published" if (row, instance) in published else "missing")
    latest = 0.0
    for path in folder.rglob("*"):
        with suppress(OSError):  # removed meanwhile
            latest = max(latest, path.stat().st_mtime)
    silent = max(time.time() - latest, 0)
    job = f"job {note['job']} on " if note.get("job") else ""
    where = f"({job}{note.get('host', 'this machine')})"
    if "failed" in note:
        return Run(row, instance, "failed", f"{note['failed']} {where}")
    data = f"{note['dataset']}, " if note.get("dataset") else ""
    epoch = f"epoch {note['epoch']} of {note.get('epochs')}, " if "epoch" in note else ""
    state = "running" if _is_running(note, RunFolder(folder), silent) else "stopped"
    return Run(row, instance, state, f"{data}{epoch}last update {duration(silent)} ago {where}")


def run_folders(runs: Path) -> Iterator[tuple[str, str]]:
    """Yield row and instance of every run folder below ``runs``."""
    for path, folders, files in os.walk(runs):
        if not {ATTEMPT, "record.json"}.isdisjoint(files):
            folders.clear()
            row, _, instance = Path(path).relative_to(runs).as_posix().rpartition("/")
            yield row, instance


def _is_running(note: Mapping[str, Any], folder: RunFolder, silent: float) -> bool:
    """Return whether a process executes a run; on another machine, whether it wrote recently."""
    if not note or "stopped" in note:
        return False
    if note.get("host") != platform.node():
        return silent < _SILENT_SECONDS
    return folder.is_locked  # the number of a process that ended may be another's now


def _divergence(record: Path) -> str:
    """Return how a finished run diverged; empty if it did not."""
    try:
        reason = read_json(record).get("diverged", {}).get("reason", "")
    except (AttributeError, UserError):  # what reads the record for its values reports that
        return ""
    return f"diverged: {reason}" if reason else ""
