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
from phantomgrad_suite.report.figures.style import (
    Look,
    bare,
    handle,
    legend,
    logarithmic,
    looks,
    panels,
    pretty,
    subtitled,
)
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
    published = [_published(line) for line in lines if line.row in table.published]
    styles = looks([*map(_name, lines), *published], markers=False)
    rows = 2 if any(_curves(line, LOSS) for line in lines) else 1
    width = max(_WIDTH * len(datasets), 5.6)
    size = (width, 1.0 + _HEIGHT * rows)
    figure, grid = panels(rows, len(datasets), size, table.title, sharex="col")
    for column, dataset in zip(grid.T, datasets, strict=True):
        mine = [line for line in lines if line.dataset == dataset]
        _metric_panel(column[0], table, mine, styles)
        column[0].set_title(dataset)
        subtitled(column[0], block.title)
        if rows == 2:
            _panel(column[1], table, mine, styles, LOSS)
            column[1].set_ylabel("training loss")
        column[-1].set_xlabel("epoch")
        column[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, styles, width)
    return figure


def _metric_panel(
    axes: Axes, table: Table, lines: Sequence[Line], styles: dict[Name, Look]
) -> None:
    metric = lines[0].metric
    _panel(axes, table, lines, styles, metric.curve, metric.scale)
    axes.set_ylabel(f"test {metric.heading.rsplit(' ', 1)[0]}")
    if metric.key == "perplexity":  # perplexities are compared by their ratio
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        many = LogLocator(subs=(1, 2, 5))
        few = MaxNLocator(6, steps=[1, 2, 5, 10])
        logarithmic(axes, many if high > 5 * low else few, numbers=True)


def _panel(
    axes: Axes,
    table: Table,
    lines: Sequence[Line],
    styles: dict[Name, Look],
    curve: str,
    scale: float = 1.0,
) -> None:
    for line in lines:
        if values := _curves(line, curve):
            ours = _masked(values) * scale
            _draw(axes, ours, styles[_name(line)])
            if theirs := table.published.get(line.row, {}).get(curve):
                compared = _masked(theirs)[:, : ours.shape[1]] * scale
                _draw(axes, compared, styles[_published(line)])
    axes.margins(x=0.01)
    bare(axes, "y")


def _draw(axes: Axes, values: np.ma.MaskedArray[Any, Any], look: Look) -> None:
    epochs = np.arange(1, values.shape[1] + 1)
    mean = values.mean(axis=0)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        band = {"color": look["color"], "alpha": 0.1, "linewidth": 0}
        axes.fill_between(epochs, mean - error, mean + error, **band)
    axes.plot(epochs, mean, **look, linewidth=1.2, marker="o" if len(epochs) == 1 else None)


def _curves(line: Line, name: str) -> list[list[float]]:
    """Return the curve ``name`` of each run that has it."""
    records = line.runs.records if line.runs else ()
    return [curve for record in records if (curve := record.curves.get(name))]


def _masked(curves: Sequence[Sequence[float]]) -> np.ma.MaskedArray[Any, Any]:
    """Return the epochs that all runs have, ``(runs, epochs)``; missing values are masked."""
    epochs = min(len(curve) for curve in curves)
    return np.ma.masked_invalid(np.array([curve[:epochs] for curve in curves], dtype=float))


def _name(line: Line) -> Name:
    return line.model, line.name


def _published(line: Line) -> Name:
    return line.model, f"{line.method}: the authors' log"


def _legend(figure: Figure, styles: dict[Name, Look], width: float) -> None:
    several = len({model for model, _ in styles}) > 1
    names = [f"{model}, {method}" if several else method for model, method in styles]
    labels = [textwrap.wrap(name, 38) for name in names]
    handles = [
        handle(pretty("\n".join(label)), **look, linewidth=1.5)
        for label, look in zip(labels, styles.values(), strict=True)
    ]
    longest = max(len(part) for label in labels for part in label)
    columns = max(1, min(len(handles), int(width / (0.7 + 0.075 * longest))))
    legend(figure, handles, columns, "mean over runs; band: ± one standard error")
