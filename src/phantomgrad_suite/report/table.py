"""A table as data: builders return it; Markdown, LaTeX, HTML and figures are made from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.inputs import Curves
from phantomgrad_suite.runs.records import StudyRecord

DASH = "—"


class State(StrEnum):
    """How far a table is reproduced."""

    MADE = "made"
    PARTLY = "partly made"
    REDUCED = "reduced"
    MISSING = "missing"


@dataclass(frozen=True)
class Cell:
    """A cell: its text, empty where there is no value, and the mark of its footnote.

    ``value`` is the mean of ``n`` runs, ``spread`` its population standard deviation, both in the
    printed unit.
    """

    text: str = ""
    value: float | None = None
    spread: float = 0.0
    n: int = 0
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.text or DASH} {self.mark}".rstrip()


@dataclass(frozen=True)
class Row:
    """A row: its cells by the heading of their column, and the experiment if it shows one."""

    cells: Mapping[str, Cell]
    line: Line | None = None


@dataclass(frozen=True)
class Block:
    """Rows under a common title; ``key`` is the folder between table and row, often empty."""

    rows: tuple[Row, ...]
    title: str = ""
    key: str = ""

    @property
    def breaks(self) -> set[int]:
        """The positions at which another data set begins."""
        datasets = [row.line.dataset if row.line else "" for row in self.rows]
        return {i for i, (before, after) in enumerate(pairwise(datasets), 1) if before != after}


@dataclass(frozen=True)
class Column:
    """A column: its heading, whether it holds numbers, and of whom (``paper`` or empty)."""

    heading: str
    numeric: bool
    group: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a table: a title, a text, a grid of cells in blocks, and notes; all optional."""

    title: str = ""
    text: str = ""
    columns: tuple[Column, ...] = ()
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of_blocks(
        cls, title: str, blocks: Sequence[Block], words: int, optional: Collection[str] = ()
    ) -> Section:
        """Return a section whose columns are the cells of its rows, which all have the same.

        The first ``words`` columns hold words, those after them numbers; ``optional`` ones are
        left out if all of their cells are empty.
        """
        rows = [row for block in blocks for row in block.rows]
        columns = tuple(
            Column(heading, i >= words, "paper" if "paper" in heading.casefold() else "")
            for i, heading in enumerate(rows[0].cells if rows else ())
            if heading not in optional or any(row.cells[heading].text for row in rows)
        )
        return cls(title, "", columns, tuple(blocks))

    @classmethod
    def of_rows(
        cls,
        title: str,
        rows: Sequence[Mapping[str, str]],
        *,
        words: int = 1,
        text: str = "",
        notes: Sequence[str] = (),
    ) -> Section:
        """Return a section of printed cells, given by the heading of their column."""
        made = tuple(Row({heading: Cell(cell) for heading, cell in r.items()}) for r in rows)
        section = cls.of_blocks(title, [Block(made)] if made else [], words)
        return cls(title, text, section.columns, section.blocks, tuple(notes))


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
        """Its name, for example ``table4``."""
        return self.entry.key

    @property
    def title(self) -> str:
        """Label and title."""
        return self.entry.heading

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of its results."""
        return self.sections[0].blocks if self.sections else ()

    @property
    def lines(self) -> list[Line]:
        """The experiments of its results."""
        return [row.line for block in self.blocks for row in block.rows if row.line]
