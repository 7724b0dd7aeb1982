"""``scripts/status.py``: the state of the runs of every table, read from their folders."""

import os
import platform
import time
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from phantomgrad_suite.runs.folder import ATTEMPT, read_attempt
from phantomgrad_suite.runs.formats import duration
from phantomgrad_suite.runs.plan import expected, tables

STATES = ("done", "running", "failed", "stopped", "published", "missing")
_SILENT_SECONDS = 3600


@dataclass(frozen=True)
class Run:
    """A run, its state, and a description of the state."""

    row: str
    instance: str
    state: str
    text: str = ""


def status(arguments: Sequence[str], configs: Path) -> int:
    """Print the state of the runs of all tables, or of one."""
    parser = ArgumentParser(
        description="The number of runs of each table that are done, running, failed (ended by an "
        "error), stopped (killed or interrupted: the same command resumes them), only published, "
        "and missing.",
        allow_abbrev=False,
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument(
        "--records", type=Path, default=configs.parent / "results" / "records", metavar="DIR"
    )
    parser.add_argument(
        "--table", choices=tables(configs), metavar="NAME", help="only this table, row by row"
    )
    parser.add_argument("--failed", action="store_true", help="only failed runs and their errors")
    options = parser.parse_args(arguments)
    groups: dict[str, list[Run]] = defaultdict(list)
    chosen = [options.table] if options.table else tables(configs)
    listed = []
    for table in chosen:
        try:
            listed += [(table, run) for run in expected(configs, table)]
        except (KeyError, OSError) as error:
            print(f"{table}: its runs cannot be listed: its sweep lacks or misnames {error}")
        except yaml.YAMLError as error:
            print(f"{table}: its runs cannot be listed: {' '.join(str(error).split())}")
    if not options.table:
        others = set(run_folders(options.runs)) - {run for _, run in listed}
        listed += [("in no table", run) for run in sorted(others)]
    for table, (row, instance) in listed:
        found = examine(row, instance, options.runs, options.records)
        groups[row if options.table else table].append(found)
    shown = ["running", "failed", "stopped"] if options.table else ["running"]
    if options.failed:
        shown = ["failed"]
    else:
        width = max(map(len, groups), default=0)
        print(" " * width, *(f"{title:>8}" for title in ("runs", *STATES)))
        for name, runs in groups.items():
            counts = Counter(run.state for run in runs)
            cells = [len(runs), *(counts[state] or "·" for state in STATES)]
            print(f"{name:<{width}}", *(f"{cell:>8}" for cell in cells))
    for state in shown:
        found_runs = [run for group in groups.values() for run in group if run.state == state]
        for text in dict.fromkeys(run.text for run in found_runs):
            run, *same = (run for run in found_runs if run.text == text)
            more = f" and {len(same)} more" if same else ""
            print(f"{state}: {run.row} {run.instance}{more}: {text}")
    return 0


def examine(row: str, instance: str, runs: Path, records: Path) -> Run:
    """Return a run with its state."""
    folder = runs / row / instance
    note, own = read_attempt(folder), folder / "record.json"
    if own.exists() or not (folder / ATTEMPT).exists():
        published = (records / row / f"{instance}.json").exists()
        state = "done" if own.exists() else "published" if published else "missing"
        return Run(row, instance, state)
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
    epoch = f"epoch {note['epoch']} of {note['epochs']}, " if "epoch" in note else ""
    state = "running" if _is_running(note, silent) else "stopped"
    return Run(row, instance, state, f"{data}{epoch}last update {duration(silent)} ago {where}")


def run_folders(runs: Path) -> Iterator[tuple[str, str]]:
    """Yield row and instance of every run folder below ``runs``."""
    for path, folders, files in os.walk(runs):
        if not {ATTEMPT, "record.json"}.isdisjoint(files):
            folders.clear()
            row, _, instance = Path(path).relative_to(runs).as_posix().rpartition("/")
            yield row, instance


def _is_running(note: Mapping[str, Any], silent: float) -> bool:
    """Return whether the process of an attempt lives; elsewhere, whether it wrote recently."""
    if not note or "stopped" in note:
        return False
    if note.get("host") != platform.node():
        return silent < _SILENT_SECONDS
    try:
        os.kill(note["pid"], 0)  # sends nothing
    except PermissionError:
        return True  # of another user
    except ProcessLookupError:
        return False
    return True
