"""The dot-and-whisker figure of a table: the paper's value of every row next to ours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures.style import (
    FAINT,
    INK,
    Look,
    bare,
    handle,
    legend,
    panels,
    pretty,
    subtitled,
)
from phantomgrad_suite.report.table import Cell, Row, Table

_ROW = 0.46  # inches
_DODGE = 0.19  # of a row
_WRAP = 34  # characters of a label
SELECTED = "epoch selected on validation data"
# The columns that are drawn, from top to bottom: label, colour and marker.
_MARKS = {
    "Paper": ("paper", INK, "D"),
    "Best": ("best epoch of each run", "#0072B2", "o"),
    "Last": ("last epoch", "#D55E00", "s"),
    "Selected": (SELECTED, "#009E73", "^"),
}


def dot_figure(table: Table) -> Figure:
    """Return a panel for each data set (below each other) and block (side by side).

    Whiskers are one population standard deviation over the runs.
    """
    blocks = table.blocks
    datasets = list(dict.fromkeys(line.dataset for line in table.lines))
    cells = [
        [
            [row for row in block.rows if row.line and row.line.dataset == dataset]
            for block in blocks
        ]
        for dataset in datasets
    ]
    counts = [max(len(rows) for rows in found) for found in cells]
    heights = [_ROW * n + 0.75 for n in counts]
    figure, grid = panels(
        *(len(datasets), len(blocks)),
        (1.2 + 5.2 * len(blocks), sum(heights) + 0.85),
        table.title,
        sharex="row",
        gridspec_kw={"height_ratios": heights},
    )
    for axes_row, found, dataset, count in zip(grid, cells, datasets, counts, strict=True):
        for axes, rows, block in zip(axes_row, found, blocks, strict=True):
            if rows:
                _panel(axes, rows, count)
                axes.set_title(dataset, pad=7)
                subtitled(axes, block.title)
            else:
                axes.set_visible(False)
        if all(row.line.metric.unit == "%" for rows in found for row in rows if row.line):
            _end_at_100(axes_row[0])
    drawn = {heading for block in blocks for row in block.rows for heading, _ in _values(row)}
    handles = [
        handle(label, linewidth=1.1, markersize=5.2, **_look(heading))
        for heading, (label, _, _) in _MARKS.items()
        if heading in drawn
    ]
    legend(figure, handles, len(handles), "whiskers: ± one standard deviation")
    return figure


def _panel(axes: Axes, rows: Sequence[Row], count: int) -> None:
    lines = [row.line for row in rows if row.line]
    for position, row in enumerate(rows):
        values = _values(row)
        for rank, (heading, cell) in enumerate(values):
            y = position + _DODGE * (rank - (len(values) - 1) / 2)
            look = _look(heading)
            axes.errorbar(
                *(cell.value, y),
                xerr=cell.spread or None,
                fmt=look.pop("marker"),
                markersize=4.8 if heading == "Paper" else 5.2,
                markeredgecolor=look["color"],
                markeredgewidth=1.1,
                elinewidth=1.1,
                capsize=2.2,
                capthick=1.1,
                **look,
            )
        if position:
            axes.axhline(position - 0.5, color=FAINT, linewidth=0.7, zorder=0)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [_label(line, lines) for line in lines])
    axes.set_xlabel(", ".join(dict.fromkeys(line.metric.heading for line in lines)))
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.tick_params(labelbottom=True)
    axes.margins(x=0.06)
    axes.spines["left"].set_visible(False)
    bare(axes, "x")


def _end_at_100(axes: Axes) -> None:
    """Let an axis of percentages, and those that share it, end just above 100."""
    left, right = axes.get_xlim()
    if right > 100:
        axes.set_xlim(right=100 + 0.02 * (100 - left))


def _values(row: Row) -> list[tuple[str, Cell]]:
    """Return the cells that are drawn, by the heading of their column."""
    cells = ((heading, row.cells[heading]) for heading in _MARKS)
    return [(heading, cell) for heading, cell in cells if cell.value is not None]


def _look(heading: str) -> Look:
    _, color, marker = _MARKS[heading]
    face = "white" if heading == "Paper" else color
    return {"color": color, "marker": marker, "markerfacecolor": face}


def _label(line: Line, lines: Sequence[Line]) -> str:
    """Return the method of a line, with its model where a panel has several."""
    several = len({other.model for other in lines}) > 1
    name = f"{line.model}, {line.method}" if several else line.method
    parts = textwrap.wrap(name, _WRAP)
    if line.variant:
        parts += textwrap.wrap(f"[{line.variant}]", _WRAP)
    return "\n".join(pretty(part) for part in parts)
