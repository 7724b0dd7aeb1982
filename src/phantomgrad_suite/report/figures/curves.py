"""The curves of a table: test metric and training loss by epoch, mean and spread over the runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures import style
from phantomgrad_suite.report.table import Block, Table

LOSS = "train/loss"
_WIDTH, _HEIGHT = 3.9, 2.4  # inches of a panel

Name = tuple[str, str]  # model and method


def lines_with_curves(block: Block) -> list[Line]:
    """Return the lines with a test curve; reduced ones only if there are no others."""
    lines = [row.line for row in block.rows if row.line]
    found = [line for line in lines if _curves(line, line.metric.curve)]
    return [line for line in found if line.is_full] or found


def curve_figure(table: Table, block: Block) -> Figure:
    """Return a column of panels for each data set.

    Lines are means over the runs, bands their standard error. Curves that authors published of a
    row are drawn next to ours, for as many epochs as ours have.
    """
    lines = lines_with_curves(block)
    datasets = list(dict.fromkeys(line.dataset for line in lines))
    theirs = [_theirs(line) for line in lines if line.row in table.published]
    styles = style.looks([*map(_ours, lines), *theirs], marker=None)
    rows = 2 if any(_curves(line, LOSS) for line in lines) else 1
    width = max(_WIDTH * len(datasets), 5.6)
    size = (width, 1.0 + _HEIGHT * rows)
    figure, grid = style.panels(rows, len(datasets), size, table.title, sharex="col")
    for column, dataset in zip(grid.T, datasets, strict=True):
        mine = [line for line in lines if line.dataset == dataset]
        metric = mine[0].metric
        _panel(column[0], table, mine, styles, metric.curve, metric.scale)
        column[0].set(title=dataset, ylabel=f"test {metric.heading.rsplit(' ', 1)[0]}")
        style.subtitled(column[0], block.title)
        if metric.key == "perplexity":
            _by_ratio(column[0])
        if rows == 2:
            _panel(column[1], table, mine, styles, LOSS, 1.0)
            column[1].set_ylabel("training loss")
        column[-1].set_xlabel("epoch")
        column[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, styles, width)
    return figure


def _by_ratio(axes: Axes) -> None:
    """Compare values by their ratio: a logarithmic axis, with plain numbers."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    many, few = LogLocator(subs=(1, 2, 5)), MaxNLocator(6, steps=[1, 2, 5, 10])
    style.logarithmic(axes, many if high > 5 * low else few, "{x:g}")


def _panel(
    axes: Axes,
    table: Table,
    lines: Sequence[Line],
    styles: dict[Name, style.Look],
    curve: str,
    scale: float,
) -> None:
    for line in lines:
        if values := _curves(line, curve):
            ours = _masked(values) * scale
            _draw(axes, ours, styles[_ours(line)])
            if published := table.published.get(line.row, {}).get(curve):
                theirs = _masked(published)[:, : ours.shape[1]] * scale
                _draw(axes, theirs, styles[_theirs(line)])
    axes.margins(x=0.01)
    style.bare(axes, "y")


def _draw(axes: Axes, values: np.ma.MaskedArray[Any, Any], look: style.Look) -> None:
    epochs = np.arange(1, values.shape[1] + 1)
    mean = values.mean(axis=0)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        band = {"color": look["color"], "alpha": 0.1, "linewidth": 0}
        axes.fill_between(epochs, mean - error, mean + error, **band)
    marker = "o" if len(epochs) == 1 else None
    axes.plot(epochs, mean, linewidth=1.2, **{**look, "marker": marker})


def _curves(line: Line, name: str) -> list[list[float]]:
    """Return the curve ``name`` of each run that has it."""
    records = line.runs.records if line.runs else ()
    return [curve for record in records if (curve := record.curves.get(name))]


def _masked(curves: Sequence[Sequence[float]]) -> np.ma.MaskedArray[Any, Any]:
    """Return the epochs that all runs have, ``(runs, epochs)``; missing values are masked."""
    epochs = min(len(curve) for curve in curves)
    return np.ma.masked_invalid(np.array([curve[:epochs] for curve in curves], dtype=float))


def _ours(line: Line) -> Name:
    return line.model, line.name


def _theirs(line: Line) -> Name:
    return line.model, f"{line.method}: the authors' log"


def _legend(figure: Figure, styles: dict[Name, style.Look], width: float) -> None:
    several = len({model for model, _ in styles}) > 1
    names = [f"{model}, {method}" if several else method for model, method in styles]
    labels = [textwrap.wrap(name, 38) for name in names]
    handles = [
        style.handle(style.pretty("\n".join(label)), **look, linewidth=1.5)
        for label, look in zip(labels, styles.values(), strict=True)
    ]
    longest = max(len(part) for label in labels for part in label)
    columns = max(1, min(len(handles), int(width / (0.7 + 0.075 * longest))))
    style.legend(figure, handles, "mean over runs; band: ± one standard error", columns)
