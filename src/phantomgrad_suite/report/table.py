"""A table as data: builders return it; Markdown, LaTeX, HTML and figures are made from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.inputs import Curves
from phantomgrad_suite.runs.records import StudyRecord

DASH = "—"


class State(StrEnum):
    """How far a table is reproduced."""

    MADE = "made"
    PARTLY = "partly made"
    SCALED = "CPU edition"
    REDUCED = "reduced"
    MISSING = "missing"


@dataclass(frozen=True)
class Cell:
    """A number: its text, empty where it is missing, and value and spread in the printed unit.

    ``link`` is where the text leads, relative to the page.
    """

    text: str = ""
    value: float | None = None
    spread: float = 0.0
    link: str = ""

    def __str__(self) -> str:
        return self.text


Cells = Mapping[str, Cell | str]
"""The cells of a row by the heading of their column."""


@dataclass(frozen=True)
class Row:
    """A row: its cells, and the experiment if it shows one."""

    cells: Cells
    line: Line | None = None

    def text(self, heading: str) -> str:
        return str(self.cells[heading]) or DASH

    def link(self, heading: str) -> str:
        cell = self.cells[heading]
        return cell.link if isinstance(cell, Cell) else ""

    def number(self, heading: str) -> tuple[float, float] | None:
        cell = self.cells[heading]
        if not isinstance(cell, Cell) or cell.value is None:
            return None
        return cell.value, cell.spread


@dataclass(frozen=True)
class Block:
    """Rows under a common title; ``key`` is the folder between table and row, often empty."""

    rows: tuple[Row, ...]
    title: str = ""
    key: str = ""

    @property
    def experiments(self) -> list[tuple[Row, Line]]:
        return [(row, row.line) for row in self.rows if row.line]


@dataclass(frozen=True)
class Column:
    """A column: its heading, and whether it holds numbers."""

    heading: str
    numeric: bool


@dataclass(frozen=True)
class Section:
    """A part of a table: a title, a text, a grid of cells in blocks, and notes; all optional."""

    title: str = ""
    text: str = ""
    columns: tuple[Column, ...] = ()
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        title: str,
        content: Sequence[Block] | Sequence[Cells],
        words: int = 1,
        *,
        text: str = "",
        notes: Sequence[str] = (),
        always: Collection[str] = (),
    ) -> Section:
        """Return a section with the columns of its blocks or rows, which all have the same.

        The first ``words`` columns hold words, those after them numbers. Empty columns are left out
        unless they are among ``always``.
        """
        blocks = [item for item in content if isinstance(item, Block)]
        plain = tuple(Row(item) for item in content if not isinstance(item, Block))
        blocks += [Block(plain)] if plain else []
        rows = [row for block in blocks for row in block.rows]
        columns = tuple(
            Column(heading, i >= words)
            for i, heading in enumerate(rows[0].cells if rows else ())
            if heading in always or any(str(row.cells[heading]) for row in rows)
        )
        return cls(title, text, columns, tuple(blocks), tuple(notes))


@dataclass(frozen=True)
class Table:
    """A table of the report.

    ``missing`` names what is missing or does not hold; the results are the first of ``sections``;
    ``studies`` are the records of a table of studies, ``published`` curves by row.
    """

    entry: Entry
    state: State
    missing: str = ""
    sections: tuple[Section, ...] = ()
    studies: tuple[StudyRecord, ...] = ()
    published: Mapping[str, Curves] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.entry.key

    @property
    def title(self) -> str:
        return self.entry.heading

    @property
    def commands(self) -> list[str]:
        """The commands for the runs that are shown."""
        entry, found = self.entry, list[str]()
        for line in (line for line in self.lines if line.runs):
            scaled = f"{entry.command} SCALE={line.scale}" if line.scale else ""
            found.append(scaled or entry.elsewhere.get(line.dataset, entry.command))
        return list(dict.fromkeys(found)) or [entry.command]

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.sections[0].blocks if self.sections else ()

    @property
    def lines(self) -> list[Line]:
        return [line for block in self.blocks for _, line in block.experiments]
