"""A table as Markdown, aligned so that the source can be read too."""

from __future__ import annotations

from collections.abc import Sequence

from phantomgrad_suite.report.table import Block, Column, Section, Table


def render(table: Table) -> str:
    """Return the title and caption of a table and all of its sections."""
    parts = [f"# {table.title}", table.entry.caption]
    for section in table.sections:
        parts += [f"## {section.title}" if section.title else "", section.text]
        parts += [_block(section, block) for block in section.blocks]
        parts.append("\n".join(f"- {note}" for note in section.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(section: Section, block: Block) -> str:
    columns = section.columns
    headings = [column.heading for column in columns]
    rows = [headings, *([str(row.cells[h]) for h in headings] for row in block.rows)]
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(3, *map(len, cells)) for cells in zip(*rows, strict=True)]
    rule = ["-" * (w - c.numeric) + ":" * c.numeric for w, c in zip(widths, columns, strict=True)]
    lines = [_line(row, widths, columns) for row in (rows[0], rule, *rows[1:])]
    title = f"**{block.title}**\n\n" if block.title else ""
    return title + "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    padded = [
        cell.rjust(width) if column.numeric else cell.ljust(width)
        for cell, width, column in zip(cells, widths, columns, strict=True)
    ]
    return f"| {' | '.join(padded)} |"
