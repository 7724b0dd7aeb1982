"""A table as data: builders return it; Markdown, LaTeX, HTML and figures are made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
class Status:
    """How far a table is reproduced, and what is missing."""

    state: State
    detail: str = ""


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        heading: unique in its section.
        numeric: whether it holds numbers, which are aligned to the right.
        group: whose numbers it holds: ``paper``, or empty for those of the records.
        optional: whether it is left out where all of its cells are empty.
    """

    heading: str
    numeric: bool = True
    group: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: what is printed, empty where there is no value.
        value: the number, in the printed unit.
        spread: its population standard deviation, in the printed unit.
        n: the number of runs with a value.
        mark: of the footnote that belongs to it.
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

    title: str
    rows: tuple[Row, ...]
    key: str = ""

    @property
    def breaks(self) -> set[int]:
        """The positions at which another data set begins."""
        datasets = [row.line.dataset if row.line else "" for row in self.rows]
        return {i for i, (before, after) in enumerate(pairwise(datasets), 1) if before != after}


@dataclass(frozen=True)
class Section:
    """A part of a table with a grid of cells, the text before it and the notes after it."""

    title: str = ""
    text: str = ""
    columns: tuple[Column, ...] = ()
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of_texts(
        cls,
        title: str,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        words: int = 1,
        text: str = "",
        notes: Sequence[str] = (),
    ) -> Section:
        """Return a section of printed cells; all columns after the first ``words`` are numeric."""
        columns = tuple(
            Column(heading, i >= words, "paper" if heading.endswith(", paper") else "")
            for i, heading in enumerate(headings)
        )
        cells = tuple(Row(dict(zip(headings, map(Cell, row), strict=True))) for row in rows)
        return cls(title, text, columns, (Block("", cells),), tuple(notes))


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        entry: key, title and caption, from the catalogue.
        status: how far it is reproduced.
        sections: its parts, the results first.
        studies: the records of a table of studies.
        published: curves that authors released, by row.
    """

    entry: Entry
    status: Status
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
