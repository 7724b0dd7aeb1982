"""Figure 3: the influence of k and λ, and of the form of the phantom gradient."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from phantomgrad_suite.report.experiments.lines import Gradient, Line
from phantomgrad_suite.report.figures.style import (
    LINES,
    Look,
    bare,
    handle,
    legend,
    looks,
    panels,
)
from phantomgrad_suite.report.table import Block, Cell, Row, Table

_EPOCHS = {"Best": "best epoch", "Selected": "epoch selected", "Last": "last epoch"}
_DODGE = 1.05  # factor between neighbours on the axis of k

Grid = dict[Gradient, Row]
Styles = dict[tuple[str, float], Look]


def grid_of(block: Block) -> Grid:
    """Return the rows of a block with runs of a phantom gradient."""
    lines = [(row, row.line) for row in block.rows if row.line and row.line.runs]
    return {line.gradient: row for row, line in lines if line.gradient}


def sweep_title(block: Block) -> str:
    """Return the data set of a block."""
    return next(row.line.dataset for row in block.rows if row.line)


def sweep_figure(table: Table, block: Block) -> Figure:
    """Return (a) λ and k of UPG and (b) NPG and UPG at the largest λ, a row for each epoch."""
    points = grid_of(block)
    styles = _styles(points)
    largest = max(gradient.damping for gradient in points)
    shown = [epoch for epoch in _EPOCHS if any(_values(points, epoch).values())]
    size = (8.2, 1.2 + 2.1 * len(shown))
    title = f"{table.title}, {sweep_title(block)}"
    figure, grid = panels(len(shown), 2, size, title, sharex=True, sharey="row")
    lines: list[Line] = [row.line for row in block.rows if row.line]
    for (left, right), epoch in zip(grid, shown, strict=True):
        values = _values(points, epoch)
        _panel(left, {g: v for g, v in values.items() if g.form == "UPG"}, styles)
        _panel(right, {g: v for g, v in values.items() if g.damping == largest}, styles)
        for axes in (left, right):
            _ticks(axes, sorted({gradient.steps for gradient in points}))
        left.set_ylabel(f"{lines[0].metric.heading}\n{_EPOCHS[epoch]}")
    grid[0, 0].set_title(r"(a) Impact of $\lambda$ and $k$ (UPG)")
    grid[0, 1].set_title(rf"(b) NPG vs. UPG ($\lambda = {largest}$)")
    for axes in grid[-1]:
        axes.set_xlabel("k")
    handles = [
        handle(rf"{form}, $\lambda = {damping}$", markersize=4.5, **look)
        for (form, damping), look in styles.items()
    ]
    counts = sorted({row.line.runs.n for row in points.values() if row.line and row.line.runs})
    runs = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    reduced = "; ".join(dict.fromkeys(line.variant for line in lines if line.variant))
    note = f"mean ± one standard deviation over {runs} runs. {reduced}".strip()
    legend(figure, handles, len(handles), note)
    return figure


def _values(points: Grid, epoch: str) -> dict[Gradient, Cell]:
    cells = {gradient: row.cells[epoch] for gradient, row in points.items()}
    return {gradient: cell for gradient, cell in cells.items() if cell.value is not None}


def _styles(points: Grid) -> Styles:
    """Return a look for UPG with each λ, and for NPG with the largest if there are any."""
    dampings = sorted({gradient.damping for gradient in points})
    keys = [("UPG", damping) for damping in dampings]
    if any(gradient.form == "NPG" for gradient in points):
        keys.append(("NPG", dampings[-1]))
    markers = {"UPG": "o", "NPG": "s"}
    found = looks(keys, LINES[: len(dampings) + 1])
    return {key: {**look, "marker": markers[key[0]]} for key, look in found.items()}


def _panel(axes: Axes, values: dict[Gradient, Cell], styles: Styles) -> None:
    lines = sorted({(gradient.form, gradient.damping) for gradient in values})
    for place, line in enumerate(lines):
        points = sorted((g.steps, v) for g, v in values.items() if (g.form, g.damping) == line)
        shift = _DODGE ** (place - (len(lines) - 1) / 2)
        axes.errorbar(
            [k * shift for k, _ in points],
            [cell.value for _, cell in points],
            yerr=[cell.spread for _, cell in points],
            markersize=4.5,
            linewidth=1.3,
            elinewidth=0.9,
            capsize=2,
            **styles[line],
        )
    bare(axes, "y")


def _ticks(axes: Axes, steps: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(k) for k in steps])
