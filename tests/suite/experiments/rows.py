"""All rows and tables: their files, their resolved configurations, the identities of their runs."""

from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import yaml
from graph_data import REPOSITORY
from training import composed

from phantomgrad_suite.runs.configs import choices, find, listed
from phantomgrad_suite.runs.identity import Identity, split_row

CONFIGS = REPOSITORY / "configs"
ROWS = choices("experiment")
TABLES = choices("table")


def file(name: str) -> Path:
    found = find(name)
    assert found is not None, name
    return found


def text(row: str) -> str:
    return file(f"experiment/{row}").read_text()


def content(table: str) -> dict[str, Any]:
    return yaml.safe_load(file(f"table/{table}").read_text())


def rows_of(table: str) -> list[str]:
    """The rows that a table launches, also at a scale, in order."""
    scale, name = split_row(table)
    sweeper = content(name)["hydra"]["sweeper"]
    own = (sweeper.get("scales") or {}).get(scale, {}).get("experiment")
    patterns = own or sweeper["params"].get("experiment")
    return listed("experiment", patterns) if patterns else rows_of(*_bases(name))


def is_sweep(table: str) -> bool:
    """Whether a table varies settings of one experiment, and names its rows by them."""
    return "varied" in content(table).get("label", {}) or any(map(is_sweep, _bases(table)))


def _bases(table: str) -> list[str]:
    defaults = [name for name in content(table).get("defaults", []) if isinstance(name, str)]
    return [name.removeprefix("/table/") for name in defaults if name != "_self_"]


SWEEPS = [table for table in TABLES if is_sweep(table)]
LISTS = [table for table in TABLES if table not in SWEEPS]


@cache
def resolved(row: str) -> dict[str, Any]:
    """The configuration as records have it, also of a row at a scale; nobody may change it."""
    from phantomgrad_suite.jobs.compose import recorded

    scale, name = split_row(row)
    return recorded(composed([f"experiment={name}", *([f"scale={scale}"] if scale else [])]))


def effective(row: str) -> dict[str, Any]:
    """The same, completed by the defaults of the constructors."""
    completed: dict[str, Any] = _with_defaults(resolved(row))
    return completed


def _with_defaults(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    defaults = {}
    if "_target_" in node:
        from hydra.utils import get_object

        parameters = signature(get_object(node["_target_"])).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not Parameter.empty}
    return {**defaults, **{key: _with_defaults(value) for key, value in node.items()}}


@cache
def identity(table: str, *overrides: str) -> tuple[Identity, dict[str, Any]]:
    """What a run of a table is called, and its resolved configuration, not to be changed."""
    from phantomgrad_suite.jobs.compose import identity_of, recorded

    scale, name = split_row(table)
    config = composed([f"table={name}", *([f"scale={scale}"] if scale else []), *overrides])
    return identity_of(config), recorded(config)
