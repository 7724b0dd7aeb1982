"""All tables and figures on one HTML page, which needs no script and no network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from phantomgrad_suite.report.figures import Drawing
from phantomgrad_suite.report.prose import read_prose, read_title
from phantomgrad_suite.report.table import Block, Column, Row, Section, State, Table
from phantomgrad_suite.runs.errors import UserError

_PIXELS_PER_POINT = 4 / 3
_FITS, _SHRUNK = 640, 0.7  # a wider figure is scrolled once it would shrink below this share
_SYMBOL = 3  # letters of a heading that is a symbol
_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"')


@dataclass(frozen=True)
class Picture:
    """A figure on the page: its caption, the paths of its files, and its size in pixels."""

    caption: str
    image: str
    document: str
    width: int
    height: int

    @property
    def least_width(self) -> int:
        """The width below which it is scrolled, 0 for none."""
        return round(self.width * _SHRUNK) if self.width > _FITS else 0


def render(results: Path, tables: Sequence[Table], figures: Mapping[str, list[Drawing]]) -> str:
    """Return the page of a folder of results.

    Args:
        results: the folder, with the files of the figures, ``README.md`` and ``bench``.
        tables: all tables, in the order of the page.
        figures: the drawings of each table, by its key.

    Raises:
        UserError: a figure, the findings or the bench cannot be read.
    """
    paper = [table for table in tables if table.entry.in_paper]
    environment = Environment(
        loader=PackageLoader("phantomgrad_suite.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"folded": folded, "groups": groups}
    counts = Counter(table.status.state for table in paper)
    readme, bench = results / "README.md", sorted((results / "bench").glob("*.md"))
    return environment.get_template("index.html.j2").render(
        paper=paper,
        counts=[(state, n) for state in State if (n := counts[state])],
        tables=[table for table in tables if table.sections],
        pictures={key: list(_pictures(results, drawings)) for key, drawings in figures.items()},
        bench=[(read_title(path), read_prose(path, results)) for path in bench],
        findings=read_prose(readme, results, "Findings"),
        reading=read_prose(readme, results, "How to read a table"),
    )


def folded(section: Section) -> tuple[Column, ...]:
    """Return the leading columns of text that become headings of groups of rows.

    These are all but the last one, if that makes fewer groups than there are rows.
    """
    numeric = [column.numeric for column in section.columns]
    depth = max((numeric.index(True) if True in numeric else len(numeric)) - 1, 0)
    columns = section.columns[:depth]
    rows = [row for block in section.blocks for row in block.rows]
    return columns if len(list(groupby(rows, lambda row: _texts(columns, row)))) < len(rows) else ()


def groups(section: Section, block: Block) -> list[tuple[str, list[Row]]]:
    """Return the rows of a block by their folded columns, with the heading of each group."""
    columns = folded(section)
    return [
        (
            " · ".join(
                f"{column.heading} = {text}" if len(column.heading) <= _SYMBOL else text
                for column, text in zip(columns, texts, strict=True)
            ),
            list(rows),
        )
        for texts, rows in groupby(block.rows, lambda row: _texts(columns, row))
    ]


def _texts(columns: Sequence[Column], row: Row) -> list[str]:
    return [str(row.cells[column.heading]) for column in columns]


def _pictures(results: Path, drawings: Sequence[Drawing]) -> Iterator[Picture]:
    """Yield the figures whose files exist."""
    for drawing in drawings:
        image, document = (f"figures/{drawing.name}.{kind}" for kind in ("svg", "pdf"))
        if not (results / image).is_file():
            continue
        text = (results / image).read_text(encoding="utf-8", errors="replace")
        size = _SIZE.search(text[:2000])
        if size is None:
            raise UserError(f"{results / image} is not an SVG with a size: delete it and repeat")
        width, height = (round(float(length) * _PIXELS_PER_POINT) for length in size.groups())
        link = document if (results / document).is_file() else image
        yield Picture(drawing.caption, quote(image), quote(link), width, height)
