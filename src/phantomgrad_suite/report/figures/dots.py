"""The dot-and-whisker figure of a table: the paper's value of every row next to ours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures import style
from phantomgrad_suite.report.table import Row, Table

_ROW = 0.46  # inches
_DODGE = 0.19  # of a row
_WRAP = 34  # characters of a label
SELECTED = "epoch selected on validation data"
# The columns that are drawn, from top to bottom: label, colour, marker and fill.
_MARKS = {
    "Paper": ("paper", style.INK, "D", "white"),
    "Best": ("best epoch of each run", "#0072B2", "o", "#0072B2"),
    "Last": ("last epoch", "#D55E00", "s", "#D55E00"),
    "Selected": (SELECTED, "#009E73", "^", "#009E73"),
}


def dot_figure(table: Table) -> Figure:
    """Return a panel for each data set (below each other) and block (side by side).

    Whiskers are one population standard deviation over the runs.
    """
    blocks = table.blocks
    datasets = list(dict.fromkeys(line.dataset for line in table.lines))
    cells = [
        [[row for row in block.rows if row.line and row.line.dataset == name] for block in blocks]
        for name in datasets
    ]
    counts = [max(len(rows) for rows in found) for found in cells]
    heights = [_ROW * n + 0.75 for n in counts]
    options = {"sharex": "row", "gridspec_kw": {"height_ratios": heights}}
    size = (1.2 + 5.2 * len(blocks), sum(heights) + 0.85)
    figure, grid = style.panels(len(datasets), len(blocks), size, table.title, **options)
    for axes_row, found, dataset, count in zip(grid, cells, datasets, counts, strict=True):
        for axes, rows, block in zip(axes_row, found, blocks, strict=True):
            axes.set_visible(bool(rows))
            if rows:
                _panel(axes, rows, count)
                axes.set_title(dataset, pad=7)
                style.subtitled(axes, block.title)
        left, right = axes_row[0].get_xlim()
        percent = all(row.line.metric.unit == "%" for rows in found for row in rows if row.line)
        if percent and right > 100:
            axes_row[0].set_xlim(right=100 + 0.02 * (100 - left))
    drawn = {heading for block in blocks for row in block.rows for heading, *_ in _values(row)}
    handles = [
        style.handle(label, linewidth=1.1, markersize=5.2, **_look(heading))
        for heading, (label, *_) in _MARKS.items()
        if heading in drawn
    ]
    style.legend(figure, handles, "whiskers: ± one standard deviation")
    return figure


def _panel(axes: Axes, rows: Sequence[Row], count: int) -> None:
    whisker: style.Look = {
        "elinewidth": 1.1,
        "capsize": 2.2,
        "capthick": 1.1,
        "markeredgewidth": 1.1,
    }
    lines = [row.line for row in rows if row.line]
    for position, row in enumerate(rows):
        values = _values(row)
        for rank, (heading, value, spread) in enumerate(values):
            y = position + _DODGE * (rank - (len(values) - 1) / 2)
            look = {**_look(heading), "linestyle": "none"}
            look["markersize"] = 4.8 if heading == "Paper" else 5.2
            look["markeredgecolor"] = look["color"]
            axes.errorbar(value, y, xerr=spread or None, **look, **whisker)
        if position:
            axes.axhline(position - 0.5, color=style.FAINT, linewidth=0.7, zorder=0)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [_label(line, lines) for line in lines])
    axes.set_xlabel(", ".join(dict.fromkeys(line.metric.heading for line in lines)))
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.tick_params(labelbottom=True)
    axes.margins(x=0.06)
    axes.spines["left"].set_visible(False)
    style.bare(axes, "x")


def _values(row: Row) -> list[tuple[str, float, float]]:
    """Return heading, value and spread of the cells that are drawn."""
    cells = ((heading, row.cells[heading]) for heading in _MARKS)
    return [(heading, c.value, c.spread) for heading, c in cells if c.value is not None]


def _look(heading: str) -> style.Look:
    _, color, marker, face = _MARKS[heading]
    return {"color": color, "marker": marker, "markerfacecolor": face}


def _label(line: Line, lines: Sequence[Line]) -> str:
    """Return the method of a line, with its model where a panel has several."""
    several = len({other.model for other in lines}) > 1
    parts = textwrap.wrap(f"{line.model}, {line.method}" if several else line.method, _WRAP)
    if line.variant:
        parts += textwrap.wrap(f"[{line.variant}]", _WRAP)
    return "\n".join(map(style.pretty, parts))
