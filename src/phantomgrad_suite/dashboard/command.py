"""The command lines of ``scripts/status.py`` and ``scripts/dashboard.py``."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from phantomgrad_suite.dashboard.plan import Groups, Places, by_row, count, snapshot, tables
from phantomgrad_suite.dashboard.server import Server
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.status import STATES, Run


def status(arguments: Sequence[str], configs: Path) -> int:
    """Print the state of the runs of all tables, or of one."""
    parser = _parser(
        "The number of runs of each table that are done, running, failed (ended by an error), "
        "stopped (killed or interrupted: the same command resumes them) and missing."
    )
    parser.add_argument("--records", type=Path, default=Path("results/records"), metavar="DIR")
    parser.add_argument(
        "--table", choices=tables(configs), metavar="NAME", help="only this table, row by row"
    )
    parser.add_argument("--failed", action="store_true", help="only failed runs and their errors")
    options = _parse(parser, arguments)
    groups = snapshot(Places(configs, options.runs, options.records), options.table)
    runs = [run for group in groups.values() for run in group]
    states = ("running", "failed", "stopped") if options.table else ("running",)
    if not options.failed:
        _print_counts(by_row(runs) if options.table else groups)
    _print_runs(runs, *(("failed",) if options.failed else states))
    return 0


def dashboard(arguments: Sequence[str], configs: Path) -> int:
    """Serve the live page, or export a table to wandb; return the exit status."""
    parser = _parser(
        "Serve a live page of all tables and their runs to this machine. With `wandb`: rebuild the "
        "finished runs of a table from their records, in <runs>/.wandb, for `wandb sync`."
    )
    parser.add_argument("action", nargs="?", choices=["wandb"])
    parser.add_argument("--results", type=Path, default=configs.parent / "results", metavar="DIR")
    parser.add_argument("--port", type=int, default=8000)
    wandb = parser.add_argument_group("with wandb")
    wandb.add_argument("--table", choices=tables(configs), metavar="NAME")
    wandb.add_argument("--project", default="phantomgrad")
    wandb.add_argument("--entity", help="user or team")
    wandb.add_argument("--online", action="store_true", help="send runs and a report now")
    options = _parse(parser, arguments)
    if (options.action is None) != (options.table is None):
        parser.error("wandb and --table belong together: wandb --table table4")
    places = Places(configs, options.runs, options.results / "records")
    try:
        if options.action:
            from phantomgrad_suite.dashboard.export import export

            export(options.table, places, options.project, options.entity, options.online)
        else:
            _serve(options.port, places)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        message = f"this needs the package {package}: install it (make env)"
    except UserError as error:
        message = str(error)
    else:
        return 0
    print(f"dashboard: {message}", file=sys.stderr)
    return 1


def _serve(port: int, places: Places) -> None:
    with Server(port, places) as server:
        print(f"live page of the runs in {places.runs}: {server.url} (Ctrl-C to stop)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        print()


def _parser(description: str) -> ArgumentParser:
    epilog = "KEY=VALUE stands for --KEY VALUE."
    parser = ArgumentParser(description=description, epilog=epilog, allow_abbrev=False)
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    return parser


def _parse(parser: ArgumentParser, arguments: Sequence[str]) -> Namespace:
    return parser.parse_args([f"--{a}" if re.match(r"\w+=.", a) else a for a in arguments])


def _print_counts(groups: Groups) -> None:
    width = max(len(name) for name in groups)
    print(" " * width, *(f"{title:>8}" for title in ("runs", *STATES)))
    for name, runs in groups.items():
        cells = [len(runs), *(number or "·" for number in count(runs).values())]
        print(f"{name:<{width}}", *(f"{cell:>8}" for cell in cells))


def _print_runs(runs: Iterable[Run], *states: str) -> None:
    chosen = [run for run in runs if run.state in states]
    for run in sorted(chosen, key=lambda run: states.index(run.state)):
        print(f"{run.state}: {run.row} {run.instance}: {run.error or run.progress} ({run.host})")
