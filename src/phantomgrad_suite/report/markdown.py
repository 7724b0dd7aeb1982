"""A table as Markdown, aligned so that the source can be read too."""

from __future__ import annotations

from phantomgrad_suite.report.layout import Table
from phantomgrad_suite.report.notes import cost_notes, notes
from phantomgrad_suite.report.tables import Grid, Section, cost_grid, result_grid


def to_markdown(table: Table) -> str:
    """Return the results, what they mean, and what they cost."""
    results, costs = result_grid(table), cost_grid(table)
    parts = [f"# {table.title}", grid_markdown(results), _list(notes(table, results.headings))]
    if costs is not None:
        parts += ["## Cost", grid_markdown(costs), _list(cost_notes(table, costs.headings))]
    return "\n\n".join(parts) + "\n"


def grid_markdown(grid: Grid) -> str:
    """Return the sections of a grid, each a Markdown table."""
    parts = []
    for section in grid.sections:
        if section.title:
            parts.append(f"**{section.title}**")
        parts.append(_section(grid, section))
    return "\n\n".join(parts)


def _section(grid: Grid, section: Section) -> str:
    rows = [[_escape(cell) for cell in row] for row in (grid.headings, *section.rows)]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    rule = [
        "-" * (width - 1) + ":" if numeric else "-" * width
        for width, numeric in zip(widths, grid.numeric, strict=True)
    ]
    lines = [_line(row, widths, grid.numeric) for row in (rows[0], rule, *rows[1:])]
    return "\n".join(lines)


def _line(cells: list[str], widths: list[int], numeric: tuple[bool, ...]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def _list(sentences: list[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
