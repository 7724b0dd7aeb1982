"""Figure 3: the influence of k and λ, and of the form of the phantom gradient."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from phantomgrad_suite.report.experiments.lines import Gradient
from phantomgrad_suite.report.figures import style
from phantomgrad_suite.report.table import Block, Row, Table

_EPOCHS = {"Best": "best epoch", "Selected": "epoch selected", "Last": "last epoch"}
_MARKERS = {"UPG": "o", "NPG": "s"}
_DODGE = 1.05  # factor between neighbours on the axis of k

Points = dict[Gradient, tuple[float, float]]  # mean and standard deviation
Styles = dict[tuple[str, float], style.Look]


def rows_by_gradient(block: Block) -> dict[Gradient, Row]:
    """Return the rows of a block with runs of a phantom gradient."""
    lines = [(row, row.line) for row in block.rows if row.line and row.line.runs]
    return {line.gradient: row for row, line in lines if line.gradient}


def sweep_figure(table: Table, block: Block) -> Figure:
    """Return (a) λ and k of UPG and (b) NPG and UPG at the largest λ, a row for each epoch."""
    rows = rows_by_gradient(block)
    lines = [row.line for row in block.rows if row.line]
    dampings, steps = sorted({g.damping for g in rows}), sorted({g.steps for g in rows})
    points = {epoch: _points(rows, epoch) for epoch in _EPOCHS if _points(rows, epoch)}
    names = [("UPG", damping) for damping in dampings] + [("NPG", dampings[-1])]
    styles = style.looks(names, style.LINES[: len(names)])
    for form, damping in names:
        styles[form, damping]["marker"] = _MARKERS[form]
    size = (8.2, 1.2 + 2.1 * len(points))
    title = f"{table.title}, {lines[0].dataset}"
    figure, grid = style.panels(len(points), 2, size, title, sharex=True, sharey="row")
    for (left, right), (epoch, cells) in zip(grid, points.items(), strict=True):
        upg = {g: cell for g, cell in cells.items() if g.form == "UPG"}
        largest = {g: cell for g, cell in cells.items() if g.damping == dampings[-1]}
        for axes, shown in ((left, upg), (right, largest)):
            _panel(axes, shown, styles)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(steps))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticklabels([str(k) for k in steps])
        left.set_ylabel(f"{lines[0].metric.heading}\n{_EPOCHS[epoch]}")
    grid[0, 0].set_title(r"(a) Impact of $\lambda$ and $k$ (UPG)")
    grid[0, 1].set_title(rf"(b) NPG vs. UPG ($\lambda = {dampings[-1]}$)")
    for axes in grid[-1]:
        axes.set_xlabel("k")
    forms = {gradient.form for gradient in rows}
    handles = [
        style.handle(rf"{form}, $\lambda = {damping}$", markersize=4.5, **look)
        for (form, damping), look in styles.items()
        if form == "UPG" or form in forms
    ]
    counts = sorted({row.line.runs.n for row in rows.values() if row.line and row.line.runs})
    runs = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    reduced = "; ".join(dict.fromkeys(line.variant for line in lines if line.variant))
    note = f"mean ± one standard deviation over {runs} runs. {reduced}".strip()
    style.legend(figure, handles, note)
    return figure


def _points(rows: dict[Gradient, Row], epoch: str) -> Points:
    cells = {gradient: row.cells[epoch] for gradient, row in rows.items()}
    return {g: (cell.value, cell.spread) for g, cell in cells.items() if cell.value is not None}


def _panel(axes: Axes, points: Points, styles: Styles) -> None:
    whisker: style.Look = {"elinewidth": 0.9, "capsize": 2}
    lines = sorted({(gradient.form, gradient.damping) for gradient in points})
    for place, line in enumerate(lines):
        mine = sorted(
            (g.steps, point) for g, point in points.items() if (g.form, g.damping) == line
        )
        shift = _DODGE ** (place - (len(lines) - 1) / 2)
        axes.errorbar(
            [k * shift for k, _ in mine],
            [mean for _, (mean, _) in mine],
            yerr=[spread for _, (_, spread) in mine],
            **{"markersize": 4.5, "linewidth": 1.3, **styles[line], **whisker},
        )
    style.bare(axes, "y")
