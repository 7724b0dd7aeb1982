"""Throughput as bars: milliseconds per sample, by phase of the training step."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from phantomgrad_suite.report.figures.style import INK, LINES, bare, panels, pretty
from phantomgrad_suite.report.studies.parts import place
from phantomgrad_suite.report.studies.throughput import PHASES, Measured, faster, label
from phantomgrad_suite.report.table import Table

_COLORS = [color for color, _ in LINES[1:4]]


def bar_figure(table: Table) -> Figure:
    """Return a panel for each record, a bar for each row."""
    heights = [0.42 * len(record.numbers["rows"]) + 0.7 for record in table.studies]
    size, ratios = (8.4, sum(heights) + 0.9), {"height_ratios": heights}
    figure, grid = panels(len(heights), 1, size, table.title, gridspec_kw=ratios)
    for axes, record in zip(grid[:, 0], table.studies, strict=True):
        _bars(axes, record.numbers["rows"])
        axes.set_title(place(record))
    patches = [Patch(color=c, label=phase) for c, phase in zip(_COLORS, PHASES, strict=True)]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return figure


def _bars(axes: Axes, rows: Sequence[Measured]) -> None:
    for position, row in enumerate(rows):
        left = 0.0
        for phase, color in zip(PHASES, _COLORS, strict=True):
            width = row["seconds"][phase]["median"] / row["batch"] * 1e3
            axes.barh(position, width, left=left, height=0.62, color=color)
            left += width
        axes.text(left, position, f" {faster(row, 'step')}", va="center", color=INK, fontsize=7.5)
    axes.set_yticks(range(len(rows)), [pretty(label(row)) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(f"milliseconds per {rows[0]['unit'].removesuffix('s')}")
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    bare(axes, "x")
