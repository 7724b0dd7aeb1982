"""The files of the report: the catalogue of all tables (titles, notes, commands), and templates."""

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@dataclass(frozen=True)
class Entry:
    """What the catalogue knows of a table."""

    key: str  # the first part of its rows, for example table4
    label: str  # for example Table 4
    title: str = ""
    command: str = "python scripts/report.py"  # makes its records
    in_paper: bool = False
    data: str = ""  # the data set that its rows must use to count as made, empty if any will do
    elsewhere: dict[str, str] = field(default_factory=dict)  # the commands for other data sets
    caption: str = ""
    notes: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)  # by name, the studies that it needs
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


add_entries(_CONTENT)


def entry_of(key: str) -> Entry:
    """Return the entry of a table; one that the catalogue does not know is named by its key."""
    return CATALOGUE.get(key) or Entry(key, key.capitalize())


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
