"""The runs that the tables list.

Read from the YAML files alone: Hydra takes seconds to compose some hundred runs.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from phantomgrad_suite.runs.configs import choices, find, read_yaml, sweep_of
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import SCALES, split_row

_read = cache(read_yaml)  # a file that rows inherit from is read once


def tables() -> list[str]:
    """Return the names of all tables, with those of the user; ``cpu/<table>`` is one at a scale."""
    names, scaled = choices("table"), []
    for scale in SCALES:
        for name in names:
            with suppress(UserError):  # which `expected` reports
                scaled += [f"{scale}/{name}"] * (scale in _scales(name))
    return [*names, *scaled]


def expected(table: str) -> list[tuple[str, str]]:
    """Return row and instance of every run of a table (:mod:`phantomgrad_suite.runs.identity`).

    A :class:`UserError` says why they cannot be listed.
    """
    scale, name = split_row(table)
    files = _with_bases(f"table/{name}")
    sweeps: dict[str, Any] = {}
    for file in reversed(files):
        sweeps = {**sweeps, **(_first([file], "hydra.sweeper.params") or {})}
    sweeps = sweep_of(sweeps, _scales(name), scale)
    if "experiment" not in sweeps:
        raise UserError("its sweep lacks experiment")
    row = _first(files, "label.row") or "${hydra:runtime.choices.experiment}"
    starts: dict[Any, tuple[Any, Any]] = {}
    runs = []
    for values in itertools.product(*map(_values, sweeps.values())):
        swept = dict(zip(sweeps, values, strict=True))
        label = row
        for key, value in swept.items():  # a table names its rows by settings that it sweeps
            for place in (key, f"hydra:runtime.choices.{key}", f"runtime.run.{key}"):
                label = label.replace(f"${{{place}}}", value)
        chosen = swept["experiment"], swept.get("dataset")
        if chosen not in starts:
            starts[chosen] = _seed_and_fold(*chosen)
        seed, fold = starts[chosen]
        seed, fold = swept.get("seed", seed), swept.get("dataset.fold", fold)
        label = f"{scale}/{label}".lstrip("/")
        runs.append((label, f"seed{seed}" + ("" if fold is None else f"-fold{fold}")))
    return list(dict.fromkeys(runs))


def _scales(table: str) -> dict[str, dict[str, Any]]:
    """Return what a table sweeps at each scale where it differs."""
    for file in _with_bases(f"table/{table}"):
        sweeper = (file.get("hydra") or {}).get("sweeper") or {}
        if "scales" in sweeper:
            return sweeper["scales"] or {}
    return {}


def _values(sweep: Any) -> list[str]:
    """Return the values of a sweep, ``1,2,3`` or ``range(3)``."""
    text = str(sweep).strip()
    if found := re.fullmatch(r"range\(([\d, ]+)\)", text):
        return [str(i) for i in range(*map(int, found[1].split(",")))]
    return [item.strip() for item in text.split(",")]


def _seed_and_fold(row: str, dataset: str | None) -> tuple[Any, Any]:
    """Return seed and fold as the files of a row have them; a row of one fold has ``None``."""
    files = [*_with_bases(f"experiment/{row}"), *_with_bases("train")]
    entries = [d for f in files for d in f.get("defaults", []) if isinstance(d, dict)]
    choices = {key.removeprefix("override /"): v for d in reversed(entries) for key, v in d.items()}
    files += _with_bases(f"dataset/{dataset or choices['dataset']}")
    return _first(files, "seed"), _first(files, "dataset.fold")


def _with_bases(name: str) -> tuple[dict[str, Any], ...]:
    """Return the content of a file and of the files it inherits from, the nearest first."""
    if not (path := find(name)):
        raise UserError(f"there is no file configs/{name}.yaml")
    content = _read(path)
    bases = [d for d in content.get("defaults", []) if isinstance(d, str) and d != "_self_"]
    paths = [b[1:] if b.startswith("/") else f"{name.rpartition('/')[0]}/{b}" for b in bases]
    return content, *(base for path in paths for base in _with_bases(path))


def _first(files: Iterable[Mapping[str, Any]], key: str) -> Any:
    """Return a setting from the first file that has it, ``None`` if there is none."""
    for content in files:
        value: Any = content
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None
