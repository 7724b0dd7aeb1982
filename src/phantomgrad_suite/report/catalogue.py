"""The catalogue of all tables: titles, notes, commands."""

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.configs import folders, read_yaml
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True)
class Entry:
    """What the catalogue knows of a table."""

    key: str  # the first part of its rows, for example table4
    label: str  # for example Table 4
    title: str = ""
    command: str = "python scripts/report.py"  # makes its records
    caption: str = ""
    notes: list[str] = field(default_factory=list)
    by_cost: list[str] = field(default_factory=list)  # rows drawn by cost, without the table
    text: dict[str, str] = field(default_factory=dict)  # templates of the texts of its sections

    @property
    def heading(self) -> str:
        return f"{self.label}: {self.title}" if self.title else self.label


_CONTENT: dict[str, Any] = tomllib.loads(
    (files(__package__) / "catalogue.toml").read_text(encoding="utf-8")
)
TABLES: dict[str, dict[str, Any]] = _CONTENT["tables"]
"""The tables that no file ``configs/table/*.yaml`` describes, such as those of studies, by key."""
FIGURES: dict[str, str] = _CONTENT["figures"]
"""The captions of figures."""
BLOCKS, DATASETS, NOTES, COLUMN_NOTES = (
    dict[str, str](_CONTENT[part]) for part in ("blocks", "datasets", "notes", "columns")
)
CLAIMS = Entry("claims", **_CONTENT["claims"])


def catalogue() -> dict[str, Entry]:
    """Return all tables in the order of the page.

    A :class:`UserError` names a file that cannot be used.
    """
    return _catalogue(folders())


@cache
def _catalogue(places: tuple[Path, ...]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in itertools.chain(*map(_tables_of_runs, places)):
        found.setdefault(entry.key, entry)  # a user's table may have rows of a published one
    found |= {key: Entry(key, **content) for key, content in TABLES.items()}
    order = dict.fromkeys([*_CONTENT["order"], *found])
    return {key: found[key] for key in order if key in found}


def _tables_of_runs(configs: Path) -> Iterator[Entry]:
    """Yield what files of tables say under ``table``; its key is that of their rows."""
    for path in sorted(configs.glob("table/*.yaml")):
        if entry := read_yaml(path).get("table"):
            try:
                key = entry.get("key", path.stem)
                yield Entry(**{"key": key, "label": key.capitalize(), **entry})
            except (AttributeError, TypeError) as error:
                raise UserError(f"{path}: `table` cannot be used: {error}") from error


def entry_of(key: str) -> Entry:
    """Return the entry of a table, which no file needs to describe."""
    return catalogue().get(key) or Entry(key, key.capitalize())
