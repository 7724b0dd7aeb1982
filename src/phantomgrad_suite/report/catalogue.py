"""The catalogue of all tables (titles, notes, commands), and the templates of the page."""

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from phantomgrad_suite.report.inputs import read_yaml
from phantomgrad_suite.runs.configs import find, folders, shared_folders
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
CATALOGUE: dict[str, Entry] = {}
CLAIMS = Entry("claims", **_CONTENT["claims"])
REPEATED: list[str] = _CONTENT["repeated"]
BLOCKS, DATASETS, NOTES, COLUMN_NOTES, FIGURES = (
    dict[str, str](_CONTENT[part]) for part in ("blocks", "datasets", "notes", "columns", "figures")
)


def add_entries(content: dict[str, Any]) -> None:
    """Add the tables, and the captions of figures, of a file like ``catalogue.toml``."""
    CATALOGUE.update({key: Entry(key, **values) for key, values in content["tables"].items()})
    FIGURES.update(content["figures"])


def _described() -> dict[str, Any]:
    """Return what the files of tables have under ``table``, by the folder of their rows."""
    files = [path for place in shared_folders() for path in sorted(place.glob("table/*.yaml"))]
    entries = {path.stem: read_yaml(path).get("table") for path in files}
    return {entry.pop("key", name): entry for name, entry in entries.items() if entry}


_ENTRIES = _CONTENT["tables"] | _described()
_ORDER = dict.fromkeys([*_CONTENT["order"], *_ENTRIES])
_CONTENT["tables"] = {key: _ENTRIES[key] for key in _ORDER if key in _ENTRIES}
add_entries(_CONTENT)


def entry_of(key: str) -> Entry:
    """Return the entry of a table; one of the user's own is described in its file, too."""
    if key in CATALOGUE:
        return CATALOGUE[key]
    own = find(f"table/{key}", folders())
    described = read_yaml(own).get("table") if own else None
    try:
        return Entry(key, **{"label": key.capitalize(), **(described or {})})
    except TypeError as error:
        raise UserError(f"{own}: `table` cannot be used: {error}") from error


def templates(**options: Any) -> Environment:
    """Return the templates of the HTML page."""
    return Environment(
        loader=PackageLoader("phantomgrad_suite.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
