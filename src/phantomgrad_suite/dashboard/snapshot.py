"""Which runs there are, and their states: what both the text and the live page show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from phantomgrad_suite.dashboard.plan import expected, tables
from phantomgrad_suite.runs.status import STATES, Run, examine, run_folders

Groups = dict[str, list[Run]]


@dataclass(frozen=True)
class Places:
    """The folders of configuration files, runs, and published records (within the results)."""

    configs: Path
    runs: Path
    records: Path


def snapshot(places: Places, table: str | None = None) -> Groups:
    """Return the runs by table: those of one table, or of all and then those of no table."""
    names = [table] if table else tables(places.configs)
    planned = {name: list(expected(places.configs, name)) for name in names}
    if table is None:
        listed = {run for runs in planned.values() for run in runs}
        planned["in no table"] = sorted(set(run_folders(places.runs)) - listed)
    return {
        name: [examine(row, instance, places.runs, places.records) for row, instance in runs]
        for name, runs in planned.items()
        if runs
    }


def by_row(runs: Iterable[Run]) -> Groups:
    """Return the runs grouped by row."""
    groups: Groups = {}
    for run in runs:
        groups.setdefault(run.row, []).append(run)
    return groups


def count(runs: Iterable[Run]) -> dict[str, int]:
    """Return the number of runs in each state."""
    counts = Counter(run.state for run in runs)
    return {state: counts[state] for state in STATES}
