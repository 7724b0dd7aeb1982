"""The dot-and-whisker figure of a table: every row's values, the paper's beside ours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from phantomgrad_suite.report.layout import Block, Line, Table
from phantomgrad_suite.report.style import (
    BEST,
    FAINT,
    LAST,
    PAPER,
    SELECTED,
    Mark,
    bare,
    legend,
    pretty,
    subtitled,
    titled,
)

_ROW = 0.46  # inches
_DODGE = 0.19  # of a row
_WRAP = 34  # characters of a label

Value = tuple[Mark, float, float]


def dot_figure(table: Table) -> Figure:
    """Return a panel for each data set (below each other) and block (side by side).

    Whiskers are one population standard deviation over the runs.
    """
    datasets = list(dict.fromkeys(line.dataset for line in table.lines))
    cells = [[_lines(block, dataset) for block in table.blocks] for dataset in datasets]
    rows = [max(len(lines) for lines in panels) for panels in cells]
    heights = [_ROW * n + 0.75 for n in rows]
    figure = Figure(
        figsize=(1.2 + 5.2 * len(table.blocks), sum(heights) + 0.85), layout="constrained"
    )
    grid = figure.subplots(
        len(datasets),
        len(table.blocks),
        sharex="row",
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )
    for axes_row, panels, dataset, most in zip(grid, cells, datasets, rows, strict=True):
        for axes, lines, block in zip(axes_row, panels, table.blocks, strict=True):
            if lines:
                _panel(axes, lines, most)
                axes.set_title(dataset, pad=7)
                subtitled(axes, block.title if len(table.blocks) > 1 else "")
            else:
                axes.set_visible(False)
        if all(line.metric.unit == "%" for lines in panels for line in lines):
            _end_at_100(axes_row[0])
    titled(figure, table.title)
    marks = [m for m in (PAPER, BEST, LAST, SELECTED) if _occurs(m, table.lines)]
    legend(
        figure, [_handle(mark) for mark in marks], len(marks), "whiskers: ± one standard deviation"
    )
    return figure


def _lines(block: Block, dataset: str) -> list[Line]:
    return [line for line in block.lines if line.dataset == dataset]


def _panel(axes: Axes, lines: Sequence[Line], rows: int) -> None:
    for position, line in enumerate(lines):
        values = _values(line)
        for rank, (mark, value, spread) in enumerate(values):
            y = position + _DODGE * (rank - (len(values) - 1) / 2)
            _draw(axes, mark, value, spread, y)
        if position:
            axes.axhline(position - 0.5, color=FAINT, linewidth=0.7, zorder=0)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [_label(line, lines) for line in lines])
    metrics = dict.fromkeys(line.metric.heading for line in lines)
    axes.set_xlabel(", ".join(metrics))
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.tick_params(labelbottom=True)
    axes.margins(x=0.06)
    axes.spines["left"].set_visible(False)
    bare(axes, "x")


def _end_at_100(axes: Axes) -> None:
    """Let an axis of percentages (and those that share it) end just behind 100."""
    left, right = axes.get_xlim()
    if right > 100:
        axes.set_xlim(right=100 + 0.02 * (100 - left))


def _values(line: Line) -> list[Value]:
    """Return what a line shows, from top to bottom, in the unit of print."""
    values: list[Value] = []
    if line.paper is not None:
        values.append((PAPER, float(line.paper.value), float(line.paper.spread or 0)))
    if line.summary is not None:
        summary, scale = line.summary, line.metric.scale
        for mark, stat in (
            (BEST, summary.best),
            (LAST, summary.last),
            (SELECTED, summary.selected),
        ):
            if stat is not None:
                values.append((mark, stat.mean * scale, stat.std * scale))
    return values


def _draw(axes: Axes, mark: Mark, value: float, spread: float, y: float) -> None:
    axes.errorbar(
        value,
        y,
        xerr=spread or None,
        fmt=mark.marker,
        color=mark.color,
        markersize=5.2 if mark.marker != "D" else 4.8,
        markerfacecolor=mark.color if mark.filled else "white",
        markeredgecolor=mark.color,
        markeredgewidth=1.1,
        elinewidth=1.1,
        capsize=2.2,
        capthick=1.1,
    )


def _label(line: Line, lines: Sequence[Line]) -> str:
    """Name a line by its method, by its model too where a panel has several."""
    several = len({other.model for other in lines}) > 1
    name = f"{line.model}, {line.method}" if several else line.method
    parts = textwrap.wrap(name, _WRAP)
    if line.variant:
        parts += textwrap.wrap(f"[{line.variant}]", _WRAP)
    return "\n".join(pretty(part) for part in parts)


def _occurs(mark: Mark, lines: Sequence[Line]) -> bool:
    return any(mark is shown for line in lines for shown, _, _ in _values(line))


def _handle(mark: Mark) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="-",
        linewidth=1.1,
        color=mark.color,
        marker=mark.marker,
        markersize=5.2,
        markerfacecolor=mark.color if mark.filled else "white",
        label=mark.label,
    )
