"""The command: serve the page, or make the runs and the report of a table on wandb."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phantomgrad_suite.dashboard.live import Places
from phantomgrad_suite.dashboard.plan import tables
from phantomgrad_suite.dashboard.server import Server
from phantomgrad_suite.runs.errors import UserError

USAGE = """usage: python scripts/dashboard.py [port=8000] [runs=DIR] [results=DIR]
       python scripts/dashboard.py wandb table=NAME [--online] [entity=WHO] [project=NAME]
                                   [runs=DIR] [results=DIR]

The first serves a page to this machine: every table and its runs, live while they go on, and the
tables and figures of DIR/index.html. Nothing is written.
The second makes the finished runs of a table on wandb from their records, offline: files under
<runs>/.wandb, which `wandb sync` sends. With --online both the runs and a report of the table are
sent at once; that needs an account (`wandb login`)."""

_FLAGS = ("--online", "--offline")
_KEYS = {"serve": ("port", "runs", "results"), "wandb": ("table", "entity", "project")}


@dataclass(frozen=True)
class _Wanted:
    """What the command line asks for."""

    action: str
    options: dict[str, str]
    online: bool

    def path(self, key: str, default: Path) -> Path:
        """Return a folder."""
        return Path(self.options.get(key, default))


def main(arguments: Sequence[str], configs: Path) -> int:
    """Do what ``arguments`` ask for; return the exit status.

    Args:
        arguments: of the command line.
        configs: the folder of the configuration files; the results lie beside it.

    Returns:
        0; 1 if something is missing or in use; 2 for a wrong argument.
    """
    if {"-h", "--help", "help"} & set(arguments):
        print(USAGE)
        return 0
    try:
        wanted = _parse(arguments, configs)
    except UserError as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 2
    results = wanted.path("results", configs.parent / "results")
    places = Places(configs, wanted.path("runs", Path("runs")), results / "records")
    try:
        if wanted.action == "wandb":
            _export(wanted, places, results)
        else:
            _serve(int(wanted.options.get("port", 8000)), results, places)
    except UserError as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str], configs: Path) -> _Wanted:
    """Return what is asked for.

    Raises:
        UserError: an argument is unknown, or its value of no use.
    """
    action = "wandb" if "wandb" in arguments[:1] else "serve"
    rest = list(arguments[1:] if action == "wandb" else arguments)
    online = action == "wandb" and "--online" in rest
    options = {}
    for argument in (a for a in rest if action == "serve" or a not in _FLAGS):
        key, _, value = argument.partition("=")
        if key not in (*_KEYS[action], "runs", "results") or not value:
            raise UserError(f"unknown argument {argument}\n{USAGE}")
        options[key] = value
    if not options.get("port", "0").isdigit() or int(options.get("port", 0)) > 65535:
        raise UserError(f"port must be a number from 0 to 65535, got {options['port']}")
    known = tables(configs)
    if action == "wandb" and options.get("table") not in known:
        named = options.get("table")
        wrong = f"there is no table {named!r}" if named else "name a table, table=NAME"
        raise UserError(f"{wrong}: choose from {', '.join(known)}")
    return _Wanted(action, options, online)


def _serve(port: int, results: Path, places: Places) -> None:
    with Server(port, results, places) as server:
        print(f"the runs of {places.runs}, live: {server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def _export(wanted: _Wanted, places: Places, results: Path) -> None:
    from phantomgrad_suite.dashboard.export import export  # it reads what the page does not need

    export(
        wanted.options["table"],
        places,
        results,
        project=wanted.options.get("project", "phantomgrad"),
        entity=wanted.options.get("entity"),
        online=wanted.online,
    )
