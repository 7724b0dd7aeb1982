"""The runs that a table file lists, under the names of :mod:`phantomgrad_suite.runs.folder`.

They are read from the YAML files alone, since Hydra takes seconds to compose some hundred runs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml


def tables(configs: Path) -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in (configs / "table").glob("*.yaml"))


@cache
def expected(configs: Path, table: str) -> tuple[tuple[str, str], ...]:
    """Return row and instance of every run of a table."""
    params, row = _sweep(configs, table)
    runs = []
    for values in itertools.product(*map(_values, params.values())):
        run = _Composition(configs, dict(zip(params, values, strict=True)))
        seed, fold = run.fill(run.get("seed")), run.get("dataset.fold")
        name = run.fill(row) if row else run.choices["experiment"]
        runs.append((name, f"seed{seed}" + ("" if fold is None else f"-fold{fold}")))
    return tuple(dict.fromkeys(runs))


@cache
def _load(path: Path) -> dict[str, Any]:
    with path.open() as file:
        return yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}


def _sweep(configs: Path, table: str) -> tuple[dict[str, Any], str | None]:
    """Return what a table sweeps and how it names its rows, both on top of its base table."""
    content = _load(configs / "table" / f"{table}.yaml")
    params: dict[str, Any] = {}
    row = None
    for base in content.get("defaults", []):
        if base != "_self_":
            params, row = _sweep(configs, base)
    more = _select(content, "hydra.sweeper.params") or {}
    return {**params, **more}, _select(content, "sweep.row") or row


def _values(sweep: Any) -> list[str]:
    """Return the values of a sweep, ``1,2,3`` or ``range(3)``."""
    text = str(sweep).strip()
    if found := re.fullmatch(r"range\(([\d, ]+)\)", text):
        return [str(i) for i in range(*map(int, found[1].split(",")))]
    return [item.strip() for item in text.split(",")]


class _Composition:
    """The settings of a run as Hydra would compose them, as far as names of runs need them."""

    def __init__(self, configs: Path, overrides: Mapping[str, str]) -> None:
        self._configs, self._overrides = configs, overrides
        self._root = _load(configs / "train.yaml")
        self._row = _load(configs / "experiment" / f"{overrides['experiment']}.yaml")
        defaults = self._root.get("defaults", []) + self._row.get("defaults", [])
        self.choices: dict[str, str] = {
            group.removeprefix("override ").lstrip("/"): choice
            for entry in defaults
            if isinstance(entry, dict)
            for group, choice in entry.items()
        }
        self.choices.update(overrides)

    def get(self, key: str) -> Any:
        """Return a setting: the table's, else the row's, else its group's, else the root's."""
        if key in self._overrides:
            return self._overrides[key]
        group, _, rest = key.partition(".")
        sources = [(self._row, key), (self._root, key)]
        if rest and group in self.choices:
            path = self._configs / group / f"{self.choices[group]}.yaml"
            sources.insert(1, (_load(path), rest))
        found = (_select(content, place) for content, place in sources)
        return next((value for value in found if value is not None), None)

    def fill(self, text: Any) -> str:
        """Return ``text`` with its interpolations replaced."""
        return re.sub(r"\$\{([^{}]+)\}", lambda match: self._resolve(match[1]), str(text))

    def _resolve(self, name: str) -> str:
        if name.startswith("hydra:runtime.choices."):
            return self.choices[name.rpartition(".")[2]]
        return self.fill(self.get(name))


def _select(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content
