"""The command: the tables and where they stand, as text."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from phantomgrad_suite.dashboard.plan import expected, tables
from phantomgrad_suite.runs.status import STATES, Run, examine, run_folders

USAGE = """usage: python scripts/status.py [--table NAME] [--failed] [runs=DIR] [records=DIR]

Of every table, how many of its runs are done, running, failed (ended by an error), stopped (killed
or broken off: the same command resumes them) and missing; then where those stand that go on.
--table NAME   this table only, row by row, with what has failed or stopped
--failed       what has failed, and by what"""

BESIDE = "in no table"
Groups = dict[str, list[Run]]


def main(arguments: Sequence[str], configs: Path) -> int:
    """Print where the tables stand; return the exit status, 2 for a wrong argument.

    Args:
        arguments: of the command line.
        configs: the folder of the configuration files.
    """
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE)
        return 0
    options, rest = _options(arguments)
    known = tables(configs)
    table = options.get("--table")
    if rest or (table is not None and table not in known):
        wrong = f"unknown argument {rest[0]}\n{USAGE}" if rest else f"there is no table {table!r}"
        print(wrong if rest else f"{wrong}: choose from {', '.join(known)}", file=sys.stderr)
        return 2
    folders = Path(options.get("runs", "runs")), Path(options.get("records", "results/records"))
    found = _examined(configs, [table] if table else known, *folders)
    if "--failed" in arguments:
        _print_runs("failed", found)
        return 0
    _print_counts(_by_row(found[table]) if table else found)
    for state in ("running", "failed", "stopped") if table else ("running",):
        _print_runs(state, found)
    return 0


def _options(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and what is none."""
    options, rest = {}, []
    left = [a for a in arguments if a != "--failed"]
    while left:
        key, _, value = left.pop(0).partition("=")
        if key == "--table" and not value and left:
            value = left.pop(0)
        if key in ("--table", "runs", "records") and value:
            options[key] = value
        else:
            rest.append(key)
    return options, rest


def _examined(configs: Path, names: Iterable[str], runs: Path, records: Path) -> Groups:
    """Return the runs by table; those of none, where all tables are looked at, at the end."""
    planned = {name: expected(configs, name) for name in names}
    if len(planned) > 1:
        listed = {run for group in planned.values() for run in group}
        planned[BESIDE] = sorted(set(run_folders(runs)) - listed)
    return {
        name: [examine(row, instance, runs, records) for row, instance in group]
        for name, group in planned.items()
        if group
    }


def _by_row(found: Iterable[Run]) -> Groups:
    groups: Groups = {}
    for run in found:
        groups.setdefault(run.row, []).append(run)
    return groups


def _print_counts(groups: Groups) -> None:
    width = max(len(name) for name in groups)
    print(" " * width, *(f"{title:>8}" for title in ("runs", *STATES)))
    for name, group in groups.items():
        counts = Counter(run.state for run in group)
        cells = [str(len(group)), *(str(counts[state] or "·") for state in STATES)]
        print(f"{name:<{width}}", *(f"{cell:>8}" for cell in cells))


def _print_runs(state: str, groups: Groups) -> None:
    for run in (run for group in groups.values() for run in group if run.state == state):
        print(f"{state}: {run.row} {run.instance}: {run.detail}")
