"""The runs that a table file lists, under the names of :mod:`phantomgrad_suite.runs.identity`.

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
    return {**params, **more}, _select(content, "label.row") or row


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
        self._rows = _with_bases(configs, f"experiment/{overrides['experiment']}")
        defaults = [e for c in (self._root, *reversed(self._rows)) for e in c.get("defaults", [])]
        self.choices: dict[str, str] = {
            group.removeprefix("override ").lstrip("/"): choice
            for entry in defaults
            if isinstance(entry, dict)
            for group, choice in entry.items()
        }
        self.choices.update(overrides)

    def get(self, key: str) -> Any:
        """Return a setting: the table's, else the row's or its base's, its group's, the root's."""
        if key in self._overrides:
            return self._overrides[key]
        group, _, rest = key.partition(".")
        sources = [(row, key) for row in self._rows]
        if rest and group in self.choices:
            for content in _with_bases(self._configs, f"{group}/{self.choices[group]}"):
                sources += [(content, rest), (content, key)]  # the latter with `@package _global_`
        found = (_select(content, place) for content, place in [*sources, (self._root, key)])
        return next((value for value in found if value is not None), None)

    def fill(self, text: Any) -> str:
        """Return ``text`` with its interpolations replaced."""
        return re.sub(r"\$\{([^{}]+)\}", lambda match: self._resolve(match[1]), str(text))

    def _resolve(self, name: str) -> str:
        if name.startswith("hydra:runtime.choices."):
            return self.choices[name.rpartition(".")[2]]
        return self.fill(self.get(name))


def _with_bases(configs: Path, name: str) -> list[dict[str, Any]]:
    """Return the content of a file and of the files it inherits from, the nearest first."""
    content = _load(configs / f"{name}.yaml")
    bases = [d for d in content.get("defaults", []) if isinstance(d, str) and d != "_self_"]
    paths = (
        b.lstrip("/") if b.startswith("/") else f"{name.rpartition('/')[0]}/{b}" for b in bases
    )
    return [content, *(c for path in paths for c in _with_bases(configs, path))]


def _select(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content
