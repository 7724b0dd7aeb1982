"""Which runs there are to be: what a table's file launches, under the names of their folders.

The names are those of :class:`phantomgrad_suite.runs.folder.Identity`; they are made from the files alone, as
Hydra would take seconds to compose some hundred runs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def _load(path: Path) -> dict[str, Any]:
    with path.open() as file:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.load(file, loader) or {}


def tables(configs: Path) -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in (configs / "table").glob("*.yaml"))


def expected(configs: Path, table: str) -> list[tuple[str, str]]:
    """Return row and instance of every run of a table, as ``runs.Identity`` would name them."""
    params, named = _sweep(configs, table)
    found = []
    for values in itertools.product(*(_values(value) for value in params.values())):
        run = _Settings(configs, dict(zip(params, values, strict=True)))
        row = run.filled(named) if named else run.settings["experiment"]
        found.append((row, run.instance()))
    return list(dict.fromkeys(found))


def _sweep(configs: Path, table: str) -> tuple[dict[str, Any], str | None]:
    """Return what a table varies, and how it names its rows; a base table comes first."""
    content = _load(configs / "table" / f"{table}.yaml")
    params: dict[str, Any] = {}
    named = None
    for base in content.get("defaults", []):
        if base != "_self_":
            params, named = _sweep(configs, base)
    more = content.get("hydra", {}).get("sweeper", {}).get("params", {})
    return {**params, **more}, content.get("sweep", {}).get("row", named)


def _values(value: Any) -> list[str]:
    """Return the values of a sweep: a list, or a range."""
    text = str(value).strip()
    if found := re.fullmatch(r"range\(([\d, ]+)\)", text):
        return [str(i) for i in range(*(int(n) for n in found[1].split(",")))]
    return [item.strip() for item in text.split(",")]


@dataclass(frozen=True)
class _Settings:
    """What a run is composed with, as far as its name goes."""

    configs: Path
    settings: Mapping[str, str]

    def instance(self) -> str:
        fold = self.setting("dataset.fold")
        return f"seed{self.setting('seed')}" + ("" if fold is None else f"-fold{fold}")

    def filled(self, text: str) -> str:
        """Return ``text`` with its interpolations replaced."""
        return re.sub(r"\$\{([^{}]+)\}", lambda match: str(self._named(match[1])), text)

    def _named(self, name: str) -> Any:
        if name.startswith("hydra:runtime.choices."):
            return self.choice(name.rpartition(".")[2])
        return self.choice("gradient") if name == "run.gradient" else self.setting(name)

    def choice(self, group: str) -> str:
        """Return the file of a group: a table's, else the row's, else the default one."""
        if group in self.settings:
            return self.settings[group]
        chosen = {}
        for content in (_load(self.configs / "train.yaml"), self._row()):
            for entry in content.get("defaults", []):
                if isinstance(entry, dict):
                    ((key, value),) = entry.items()
                    chosen[key.removeprefix("override ").lstrip("/")] = value
        return str(chosen[group])

    def setting(self, key: str) -> Any:
        """Return a value: of the table, else the row, else the file of its group, else the root."""
        if key in self.settings:
            return self.settings[key]
        group, _, rest = key.rpartition(".")
        own = _select(self._row(), key)
        if own is not None:
            return own
        file = f"{group}/{self.choice(group)}.yaml" if group else "train.yaml"
        return _select(_load(self.configs / file), rest)

    def _row(self) -> dict[str, Any]:
        return _load(self.configs / "experiment" / f"{self.settings['experiment']}.yaml")


def _select(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content
