"""The catalogue: keys, titles, captions, notes and commands of all tables, from a TOML file."""

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Entry:
    """What the catalogue knows of a table.

    Attributes:
        key: the first part of its rows, for example ``table4``.
        label: for example ``Table 4``.
        title: what it shows.
        command: makes its records.
        in_paper: whether the paper has it.
        data: the data set that its rows must use to count as made, empty if any will do.
        caption: the text below the title.
        notes: footnotes.
        parts: the studies that it needs to count as made, by name.
        text: templates of the texts of its sections.
    """

    key: str
    label: str
    title: str = ""
    command: str = "python scripts/report.py"
    in_paper: bool = False
    data: str = ""
    caption: str = ""
    notes: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Label and title."""
        return f"{self.label}: {self.title}" if self.title else self.label


_FILE = files(__package__) / "catalogue.toml"
_CONTENT: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
CATALOGUE = {key: Entry(key, **values) for key, values in _CONTENT["tables"].items()}
BLOCKS, NOTES, COLUMN_NOTES, FIGURES, LATEX = (
    dict[str, str](_CONTENT[part]) for part in ("blocks", "notes", "columns", "figures", "latex")
)


def entry_of(key: str) -> Entry:
    """Return the entry of a table; one that the catalogue does not know is named by its key."""
    return CATALOGUE.get(key) or Entry(key, key.capitalize())
