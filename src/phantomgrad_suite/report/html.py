"""All tables and figures on one HTML page, which needs no script and no network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from phantomgrad_suite.report.figures.plot import Plot
from phantomgrad_suite.report.latex import templates
from phantomgrad_suite.report.prose import sections_of
from phantomgrad_suite.report.table import Block, Row, Section, State, Table
from phantomgrad_suite.runs.errors import UserError

_PIXELS_PER_POINT = 4 / 3
_FITS, _SHRUNK = 640, 0.7  # a wider figure is scrolled once it would shrink below this share
_SYMBOL = 3  # letters of a heading that is a symbol
_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"')


@dataclass(frozen=True)
class Picture:
    """A figure on the page; below ``least_width`` pixels it is scrolled, 0 for never."""

    caption: str
    image: str
    document: str
    width: int
    height: int
    least_width: int


def render(results: Path, tables: Sequence[Table], figures: Mapping[str, list[Plot]]) -> str:
    """Return the page of a folder of results (figures, ``README.md`` and ``bench``).

    Args:
        results: the folder.
        tables: all tables, in the order of the page.
        figures: those of each table, by its key.
    """
    environment = templates(autoescape=True)
    environment.globals |= {"folded": folded, "groups": groups}
    paper = [table for table in tables if table.entry.in_paper]
    counts = Counter(table.state for table in paper)
    readme = sections_of(results / "README.md", results)
    bench = [sections_of(path, results) for path in sorted((results / "bench").glob("*.md"))]
    return environment.get_template("index.html.j2").render(
        paper=paper,
        counts=[(state, counts[state]) for state in State if counts[state]],
        tables=[table for table in tables if table.sections],
        pictures={key: list(_pictures(results, drawings)) for key, drawings in figures.items()},
        bench=bench,
        findings=readme.get("Findings", ""),
        reading=readme.get("How to read a table", ""),
    )


def folded(section: Section) -> list[str]:
    """Return the headings of the leading columns that become titles of groups of rows.

    These are all columns of words but the last one, if that makes fewer groups than rows.
    """
    words = [column.heading for column in section.columns if not column.numeric][:-1]
    rows = [row for block in section.blocks for row in block.rows]
    return words if len(list(groupby(rows, lambda row: _texts(words, row)))) < len(rows) else []


def groups(section: Section, block: Block) -> list[tuple[str, list[Row]]]:
    """Return the rows of a block by their folded columns, with the title of each group."""
    headings, found = folded(section), []
    for texts, rows in groupby(block.rows, lambda row: _texts(headings, row)):
        named = zip(headings, texts, strict=True)
        title = " · ".join(f"{h} = {text}" if len(h) <= _SYMBOL else text for h, text in named)
        found.append((title, list(rows)))
    return found


def _texts(headings: Sequence[str], row: Row) -> list[str]:
    return [str(row.cells[heading]) for heading in headings]


def _pictures(results: Path, drawings: Sequence[Plot]) -> Iterator[Picture]:
    """Yield the figures whose files exist."""
    for drawing in drawings:
        image, document = (f"figures/{drawing.name}.{kind}" for kind in ("svg", "pdf"))
        if not (results / image).is_file():
            continue
        text = (results / image).read_text(encoding="utf-8", errors="replace")
        size = _SIZE.search(text)
        if size is None:
            raise UserError(f"{results / image} is not an SVG with a size: delete it and repeat")
        width, height = (round(float(length) * _PIXELS_PER_POINT) for length in size.groups())
        link = document if (results / document).is_file() else image
        least = round(width * _SHRUNK) if width > _FITS else 0
        yield Picture(drawing.caption, quote(image), quote(link), width, height, least)
