"""Figure 3: the influence of k and λ, and of the form of the phantom gradient."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from phantomgrad_suite.report.layout import Block, Line, Table
from phantomgrad_suite.report.style import LINES, bare, legend, titled
from phantomgrad_suite.report.summary import Stat, Summary

_ROW = re.compile(r"(upg|npg)_k(\d+)_d([\d.]+)$")
_EPOCHS = (("best", "best epoch"), ("selected", "epoch selected"), ("last", "last epoch"))
_DODGE = 1.05  # factor between neighbours on the axis of k
_MARKERS = {"UPG": "o", "NPG": "s"}


@dataclass(frozen=True)
class _Cell:
    """One point of the grid: its form, k, λ, and the runs."""

    form: str
    steps: int
    damping: float
    summary: Summary
    scale: float

    def value(self, epoch: str) -> tuple[float, float] | None:
        """Return the mean in print and its standard deviation."""
        stat: Stat | None = getattr(self.summary, epoch)
        return None if stat is None else (stat.mean * self.scale, stat.std * self.scale)


def sweep_figures(table: Table) -> dict[str, Figure]:
    """Return a figure for each data set that has a grid: (a) λ and k of UPG, (b) NPG and UPG."""
    drawn = {}
    for block in table.blocks:
        cells = [cell for line in block.lines if (cell := _cell(line))]
        if cells:
            drawn[f"{table.name}_{block.key.replace('/', '_')}"] = _figure(table, block, cells)
    return drawn


def _cell(line: Line) -> _Cell | None:
    match = _ROW.search(line.row)
    if match is None or line.summary is None:
        return None
    form, steps, damping = match.groups()
    return _Cell(form.upper(), int(steps), float(damping), line.summary, line.metric.scale)


def _figure(table: Table, block: Block, cells: Sequence[_Cell]) -> Figure:
    dampings = sorted({cell.damping for cell in cells})
    styles = dict(zip(dampings, LINES[: len(dampings)], strict=True))
    shown = [(epoch, title) for epoch, title in _EPOCHS if any(c.value(epoch) for c in cells)]
    figure = Figure(figsize=(8.2, 1.2 + 2.1 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 2, sharex=True, sharey="row", squeeze=False)
    for axes_row, (epoch, title) in zip(grid, shown, strict=True):
        for axes, forms in zip(axes_row, (("UPG",), ("UPG", "NPG")), strict=True):
            kept = [cell for cell in cells if cell.form in forms]
            if len(forms) > 1:  # one λ tells the forms apart better than all of them
                kept = [cell for cell in kept if cell.damping == dampings[-1]]
            _panel(axes, kept, epoch, styles)
            _ticks(axes, sorted({cell.steps for cell in cells}))
        axes_row[0].set_ylabel(f"{block.lines[0].metric.heading}\n{title}")
    grid[0, 0].set_title(r"(a) Impact of $\lambda$ and $k$ (UPG)")
    grid[0, 1].set_title(rf"(b) NPG vs. UPG ($\lambda = {dampings[-1]}$)")
    for axes in grid[-1]:
        axes.set_xlabel("k")
    runs = sorted({cell.summary.n for cell in cells})
    reduced = "; ".join(dict.fromkeys(line.variant for line in block.lines if line.variant))
    titled(figure, f"{table.title}, {block.lines[0].dataset}")
    with_npg = any(cell.form == "NPG" for cell in cells)
    _legend(
        figure,
        styles,
        with_npg,
        f"mean ± one standard deviation over {_several(runs)} runs. {reduced}".strip(),
    )
    return figure


def _panel(
    axes: Axes, cells: Sequence[_Cell], epoch: str, styles: dict[float, tuple[str, Any]]
) -> None:
    lines = sorted({(cell.form, cell.damping) for cell in cells})
    for place, (form, damping) in enumerate(lines):
        line = sorted(
            (c for c in cells if (c.form, c.damping) == (form, damping)), key=lambda c: c.steps
        )
        points = [(c.steps, value) for c in line if (value := c.value(epoch))]
        color, dashes = styles[damping] if form == "UPG" else LINES[len(styles)]
        axes.errorbar(
            [k * _DODGE ** (place - (len(lines) - 1) / 2) for k, _ in points],
            [mean for _, (mean, _) in points],
            yerr=[error for _, (_, error) in points],
            color=color,
            linestyle=dashes,
            marker=_MARKERS[form],
            markersize=4.5,
            linewidth=1.3,
            elinewidth=0.9,
            capsize=2,
        )
    bare(axes, "y")


def _ticks(axes: Axes, steps: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(k) for k in steps])


def _legend(
    figure: Figure, styles: dict[float, tuple[str, Any]], with_npg: bool, title: str
) -> None:
    named = [(rf"UPG, $\lambda = {d}$", style, "o") for d, style in styles.items()]
    if with_npg:
        named.append((rf"NPG, $\lambda = {max(styles)}$", LINES[len(styles)], "s"))
    handles = [
        Line2D([], [], color=color, linestyle=dashes, marker=marker, markersize=4.5, label=label)
        for label, (color, dashes), marker in named
    ]
    legend(figure, handles, len(handles), title)


def _several(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
