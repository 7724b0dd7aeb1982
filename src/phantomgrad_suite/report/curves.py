"""The curves of a table: test metric and training loss by epoch, mean and spread over the runs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from phantomgrad_suite.report.layout import Block, Line, Table
from phantomgrad_suite.report.published import Curves
from phantomgrad_suite.report.style import LINES, bare, legend, pretty, subtitled, titled

LOSS = "train/loss"
_WIDTH, _HEIGHT = 3.9, 2.4  # inches of a panel

Style = tuple[str, Any]
Name = tuple[str, str]  # model and method
Published = Mapping[str, Curves]  # by row


def curve_figure(table: Table, block: Block) -> Figure | None:
    """Return a column of panels for each data set, ``None`` without curves.

    Lines are means over the runs, bands their standard error. Reduced runs are left out unless
    there are no others. Curves that authors published of a row are drawn beside ours, as far as
    ours go.
    """
    lines = [line for line in block.lines if _curves(line, line.metric.curve)]
    if not lines:
        return None
    lines = [line for line in lines if not line.reduced] or lines
    datasets = list(dict.fromkeys(line.dataset for line in lines))
    names = dict.fromkeys(_name(line) for line in lines)
    names |= dict.fromkeys(_theirs(line) for line in lines if line.row in table.published)
    styles: dict[Name, Style] = dict(zip(names, cycle(LINES), strict=False))
    rows = 2 if any(_curves(line, LOSS) for line in lines) else 1
    width = max(_WIDTH * len(datasets), 5.6)
    figure = Figure(figsize=(width, 1.0 + _HEIGHT * rows), layout="constrained")
    grid = figure.subplots(rows, len(datasets), sharex="col", squeeze=False)
    for axes, dataset in zip(grid.T, datasets, strict=True):
        ours = [line for line in lines if line.dataset == dataset]
        _column(axes, dataset, ours, table.published, styles)
        subtitled(axes[0], block.title if len(table.blocks) > 1 else "")
    titled(figure, table.title)
    _legend(figure, styles, width)
    return figure


def _column(
    panels: Sequence[Axes],
    dataset: str,
    lines: Sequence[Line],
    published: Published,
    styles: dict[Name, Style],
) -> None:
    panels[0].set_title(dataset)
    for axes, loss in zip(panels, (False, True), strict=False):
        for line in lines:
            scale = 1.0 if loss else line.metric.scale
            name = LOSS if loss else line.metric.curve
            if values := _curves(line, name):
                ours = _masked(values) * scale
                _draw(axes, ours, styles[_name(line)])
                if theirs := published.get(line.row, {}).get(name):
                    beside = _masked(theirs)[:, : ours.shape[1]] * scale
                    _draw(axes, beside, styles[_theirs(line)])
        heading = lines[0].metric.heading.rsplit(" ", 1)[0]
        axes.set_ylabel("training loss" if loss else f"test {heading}")
        if not loss and lines[0].metric.curve.endswith("perplexity"):
            _by_ratio(axes)  # perplexities are compared so
        axes.margins(x=0.01)
        bare(axes, "y")
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))


def _by_ratio(axes: Axes) -> None:
    """Have a logarithmic axis with plain numbers, also where all is within one power of ten."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = LogLocator(subs=(1, 2, 5)) if high > 5 * low else MaxNLocator(6, steps=[1, 2, 5, 10])
    axes.yaxis.set_major_locator(ticks)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _draw(axes: Axes, values: np.ma.MaskedArray[Any, Any], style: Style) -> None:
    color, dashes = style
    epochs = np.arange(1, values.shape[1] + 1)
    mean = values.mean(axis=0)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.fill_between(epochs, mean - error, mean + error, color=color, alpha=0.1, linewidth=0)
    marker = "o" if len(epochs) == 1 else None
    axes.plot(epochs, mean, color=color, linestyle=dashes, linewidth=1.2, marker=marker)


def _curves(line: Line, name: str) -> list[list[float]]:
    """Return the curve ``name`` of each run that has it."""
    records = line.summary.records if line.summary else ()
    return [curve for record in records if (curve := record.curves.get(name))]


def _masked(curves: Sequence[Sequence[float]]) -> np.ma.MaskedArray[Any, Any]:
    """Return the epochs that all runs have, ``(runs, epochs)``; missing values are masked."""
    epochs = min(len(curve) for curve in curves)
    return np.ma.masked_invalid(np.array([curve[:epochs] for curve in curves], dtype=float))


def _name(line: Line) -> Name:
    return line.model, line.name


def _theirs(line: Line) -> Name:
    """Return the name of the curves that the authors published of a row."""
    return line.model, f"{line.method}: the authors' log"


def _legend(figure: Figure, styles: dict[Name, Style], width: float) -> None:
    several = len({model for model, _ in styles}) > 1
    names = [f"{model}, {method}" if several else method for model, method in styles]
    labels = [textwrap.wrap(name, 38) for name in names]
    handles = [
        Line2D([], [], color=color, linestyle=dashes, linewidth=1.5, label=pretty("\n".join(label)))
        for (color, dashes), label in zip(styles.values(), labels, strict=True)
    ]
    longest = max(len(part) for label in labels for part in label)
    columns = max(1, min(len(handles), int(width / (0.7 + 0.075 * longest))))
    legend(figure, handles, columns, "mean over runs; band: ± one standard error")
