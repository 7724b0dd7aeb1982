"""The figures of runs: the values of a table, curves by epoch, and what training measured."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures import plot, style
from phantomgrad_suite.report.figures.plot import Panel, Plot, file_name, mark
from phantomgrad_suite.report.table import Block, Row, Table
from phantomgrad_suite.runs.records import Record

LOSS, STEP = "train/loss", "precision/step"
SELECTED = "epoch selected on validation data"
_DODGE = 0.19  # between the values of a row
_WRAP = 34  # characters of a label
# The columns that are drawn, from top to bottom: label, colour, marker and fill.
_MARKS = {
    "Paper": ("paper", style.INK, "D", "white"),
    "Best": ("best epoch of each run", "#0072B2", "o", "#0072B2"),
    "Last": ("last epoch", "#D55E00", "s", "#D55E00"),
    "Selected": (SELECTED, "#009E73", "^", "#009E73"),
}
_ESTIMATE = re.compile(r"precision/(upg|npg)_k(\d+)_d([\d.]+)/cosine$")
_RADII = {
    "F": r"$\rho(\partial F / \partial h)$",
    "F_damped": r"$\rho(\partial F_\lambda / \partial h)$",
}
_SHARED = {"sharex": True, "sharey": True}

Name = tuple[str, str]  # model and method


def of_runs(table: Table) -> Iterator[Plot]:
    """Yield the values of all rows, the curves of each block, and what training measured."""
    yield _dot_plot(table)
    yield from (_curve_plot(table, block) for block in table.blocks if _with_curves(block))
    yield from along_training(table)


def _dot_plot(table: Table) -> Plot:
    """Return the values of all rows: a row of panels for each data set, a column for each block.

    Whiskers are one population standard deviation over the runs.
    """
    blocks = table.blocks
    datasets = list(dict.fromkeys(line.dataset for line in table.lines))
    found = [
        [[row for row in block.rows if row.line and row.line.dataset == name] for block in blocks]
        for name in datasets
    ]
    panels = []
    for rows_of, dataset in zip(found, datasets, strict=True):
        limits = _limits([row for rows in rows_of for row in rows])
        common = {"title": dataset, "xlim": limits, "ylim": (max(map(len, rows_of)) - 0.5, -0.5)}
        titled = zip(rows_of, blocks, strict=True)
        panels.append(
            [_dots(rows, block.title, common) if rows else None for rows, block in titled]
        )
    heights = [0.46 * max(map(len, rows)) + 0.75 for rows in found]
    drawn = {heading for block in blocks for row in block.rows for heading, *_ in _values(row)}
    legend = [(_MARKS[heading][0], _dot_look(heading)) for heading in _MARKS if heading in drawn]
    size = (1.2 + 5.2 * len(blocks), sum(heights) + 0.85)
    note, options = "whiskers: ± one standard deviation", {"height_ratios": heights}
    caption = FIGURES["dots"]
    return Plot(table.key, caption, table.title, size, panels, legend, note, options)


def _dots(rows: Sequence[Row], subtitle: str, common: style.Look) -> Panel:
    marks: list[plot.Mark] = []
    for position, row in enumerate(rows):
        values = _values(row)
        for rank, (heading, value, spread) in enumerate(values):
            y = position + _DODGE * (rank - (len(values) - 1) / 2)
            marks.append(mark(Axes.errorbar, value, y, xerr=spread or None, **_dot_look(heading)))
        if position:
            marks.append(mark(Axes.axhline, position - 0.5, color=style.FAINT, zorder=0))
    lines = [row.line for row in rows if row.line]
    axes = {
        **common,
        "yticks": range(len(lines)),
        "yticklabels": [_label(line, lines) for line in lines],
        "xlabel": ", ".join(dict.fromkeys(line.metric.heading for line in lines)),
    }
    return Panel(marks, axes, "x", subtitle, {"x": MaxNLocator(7, steps=[1, 2, 5, 10])})


def _values(row: Row) -> list[tuple[str, float, float]]:
    """Return heading, value and spread of the cells that are drawn."""
    cells = ((heading, row.cells[heading]) for heading in _MARKS)
    return [(heading, c.value, c.spread) for heading, c in cells if c.value is not None]


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of an axis; percentages end at 100."""
    values = [value for row in rows for value in _values(row)]
    low = min(value - spread for _, value, spread in values)
    high = max(value + spread for _, value, spread in values)
    pad = 0.06 * (high - low) or 1.0
    percent = all(row.line.metric.unit == "%" for row in rows if row.line)
    right = 100 + 0.02 * (100 - low + pad) if percent and high + pad > 100 else high + pad
    return low - pad, right


def _dot_look(heading: str) -> style.Look:
    _, color, marker, face = _MARKS[heading]
    look = {"color": color, "marker": marker, "markerfacecolor": face, "markersize": 5}
    return {**look, "linestyle": "none", "markeredgecolor": color}


def _label(line: Line, lines: Sequence[Line]) -> str:
    """Return the method of a line, with its model where a panel has several."""
    several = len({other.model for other in lines}) > 1
    parts = textwrap.wrap(f"{line.model}, {line.method}" if several else line.method, _WRAP)
    if line.variant:
        parts += textwrap.wrap(f"[{line.variant}]", _WRAP)
    return "\n".join(map(style.pretty, parts))


def _with_curves(block: Block) -> list[Line]:
    """Return the lines with a test curve; reduced ones only if there are no others."""
    lines = [row.line for row in block.rows if row.line]
    found = [line for line in lines if _curves(line, line.metric.curve)]
    return [line for line in found if line.is_full] or found


def _curve_plot(table: Table, block: Block) -> Plot:
    """Return test metric and training loss by epoch, a column of panels for each data set.

    Lines are means over the runs, bands their standard error. Curves that authors published of a
    row are drawn next to ours, for as many epochs as ours have.
    """
    lines = _with_curves(block)
    datasets = list(dict.fromkeys(line.dataset for line in lines))
    theirs = [_theirs(line) for line in lines if line.row in table.published]
    looks = style.looks([*map(_ours, lines), *theirs], marker=None)
    columns = []
    for dataset in datasets:
        mine = [line for line in lines if line.dataset == dataset]
        metric = mine[0].metric
        marks = _mean_curves(table, mine, looks, metric.curve, metric.scale)
        axes: style.Look = {
            "title": dataset,
            "ylabel": f"test {metric.heading.rsplit(' ', 1)[0]}",
            "xmargin": 0.01,
        }
        locators: dict[str, Locator] = {"x": MaxNLocator(integer=True)}
        ratios = metric.key == "perplexity"
        if ratios:
            axes["yscale"] = "log"
            many, few = LogLocator(subs=(1, 2, 5)), MaxNLocator(6, steps=[1, 2, 5, 10])
            low, high = (end(end(m.y) for m in marks) for end in (min, max))
            locators["y"] = many if high > 5 * low else few
        column = [Panel(marks, axes, "y", block.title, locators, plain=ratios)]
        if any(_curves(line, LOSS) for line in lines):
            losses = _mean_curves(table, mine, looks, LOSS, 1.0)
            below = {"ylabel": "training loss", "xmargin": 0.01}
            column.append(Panel(losses, below, locators={"x": locators["x"]}))
        column[-1].axes["xlabel"] = "epoch"
        columns.append(column)
    width, panels = max(3.9 * len(datasets), 5.6), list(zip(*columns, strict=True))
    several = len({model for model, _ in looks}) > 1
    names = [f"{model}, {method}" if several else method for model, method in looks]
    labels = [style.pretty(textwrap.fill(name, 38)) for name in names]
    longest = max(min(len(name), 38) for name in names)
    return Plot(
        file_name(table.key, block.key, "curves"),
        "; ".join(filter(None, (block.title, FIGURES["curves"]))),
        table.title,
        (width, 1.0 + 2.4 * len(panels)),
        panels,
        list(zip(labels, looks.values(), strict=True)),
        "mean over runs; band: ± one standard error",
        {"sharex": "col"},
        max(1, min(len(looks), int(width / (0.7 + 0.075 * longest)))),
    )


def _mean_curves(
    table: Table, lines: Sequence[Line], looks: dict[Name, style.Look], curve: str, scale: float
) -> list[plot.Line]:
    marks = []
    for line in lines:
        if values := _curves(line, curve):
            ours = _masked(values) * scale
            marks.append(_mean_curve(ours, looks[_ours(line)]))
            if published := table.published.get(line.row, {}).get(curve):
                theirs = _masked(published)[:, : ours.shape[1]] * scale
                marks.append(_mean_curve(theirs, looks[_theirs(line)]))
    return marks


def _mean_curve(values: np.ma.MaskedArray[Any, Any], look: style.Look) -> plot.Line:
    epochs, mean, band = np.arange(1, values.shape[1] + 1), values.mean(axis=0), None
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        band = (mean - error, mean + error)
    return plot.Line(epochs, mean, {**look, "marker": "o" if len(epochs) == 1 else None}, band)


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


def along_training(table: Table) -> Iterator[Plot]:
    """Yield the cosines along each run that measured them, and the radii of each data set."""
    lines = [line for line in table.lines if _measured(line)]
    yield from (_cosine_plot(table, line) for line in lines)
    for dataset in dict.fromkeys(line.dataset for line in lines):
        yield _radius_plot(table, dataset, [line for line in lines if line.dataset == dataset])


def _measured(line: Line) -> list[Record]:
    """Return the runs of a line that measured the precision of gradients."""
    records = line.runs.records if line.runs else ()
    return [record for record in records if STEP in record.curves]


def _cosine_plot(table: Table, line: Line) -> Plot:
    """Return the cosines of all estimates along a run; as in the paper steps go upwards."""
    curves = _measured(line)[0].curves
    matches = [(name, _ESTIMATE.match(name)) for name in curves]
    estimates = sorted((m[1].upper(), int(m[2]), float(m[3]), name) for name, m in matches if m)
    options: style.Look = {"linestyle": "none", "markersize": 3.2}
    looks = style.looks(((k, damping) for _, k, damping, _ in estimates), **options)
    panels = []
    for form, letter in (("NPG", "a"), ("UPG", "b")):
        axes = {"title": f"({letter}) {form}", "xlabel": r"$\cos(\hat{g}, g)$"}
        mine = [(looks[k, d], name) for other, k, d, name in estimates if other == form]
        marks = [plot.Line(curves[name], curves[STEP], look) for look, name in mine]
        panels.append(Panel(marks, axes, "x"))
    panels[0].axes["ylabel"] = "training step"
    title = f"{table.title}: {line.dataset}, trained by {line.method}"
    legend = [(rf"$k = {k}, \lambda = {damping}$", look) for (k, damping), look in looks.items()]
    note = "cosine to the exact gradient of the parameters of F"
    name, caption = line.row.split("/")[-1], FIGURES["cosines"].format(line=line)
    names = (file_name(table.key, name), caption, title)
    return Plot(*names, (8.4, 4.4), [panels], legend, note, _SHARED)


def _radius_plot(table: Table, dataset: str, lines: Sequence[Line]) -> Plot:
    """Return the spectral radii with and without damping of all runs on a data set."""
    looks = style.looks((line.row for line in lines), markersize=4)
    panels = []
    for name, label in _RADII.items():
        marks: list[plot.Mark] = []
        for line in lines:
            for record in _measured(line):
                values = np.asarray(record.curves[f"precision/spectral_radius/{name}"], dtype=float)
                look = {**looks[line.row], "markevery": max(len(values) // 10, 1)}
                marks.append(plot.Line(record.curves[STEP], values, look))
        marks.append(mark(Axes.axhline, 1, **style.DOTTED))
        panels.append(Panel(marks, {"title": label, "xlabel": "training step", "ylim": (0, None)}))
    panels[0].axes["ylabel"] = "spectral radius"
    title = f"Spectral radii along training: {dataset}"
    legend = [(line.method, looks[line.row]) for line in lines]
    note = "largest over layers and samples of a batch"
    name, caption = dataset.lower(), FIGURES["radius"].format(dataset=dataset)
    names = (file_name(table.key, name, "radius"), caption, title)
    return Plot(*names, (8.4, 3.6), [panels], legend, note, _SHARED)
