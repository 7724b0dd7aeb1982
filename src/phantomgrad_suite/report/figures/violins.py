"""Figure 1: distributions of the cosine to the exact gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phantomgrad_suite.report.figures.style import INK, bare, handle, legend, panels
from phantomgrad_suite.report.studies.synthetic import (
    FORMS,
    Estimate,
    dampings,
    in_order,
    select,
    title,
)
from phantomgrad_suite.report.table import Table

_ROWS, _STATES = "#9ecae1", "#08519c"
_HALF = 0.42  # of the distance between two values of k


def violin_figure(table: Table) -> Figure:
    """Return a row of panels for each F, a column for each form and λ."""
    records = in_order(table.studies)
    columns = [(form, damping) for form in FORMS for damping in dampings(records)]
    size = (2.5 * len(columns) + 0.6, 2.25 * len(records) + 1.1)
    figure, grid = panels(len(records), len(columns), size, table.title, sharey="row", sharex=True)
    for axes_row, record in zip(grid, records, strict=True):
        for axes, (form, damping) in zip(axes_row, columns, strict=True):
            _panel(axes, select(record, form, damping))
            axes.set_title(rf"{form}, $\lambda = {damping}$")
        axes_row[0].set_ylabel(r"$\cos(\hat{g}, g)$")
        setting = record.setting
        axes_row[0].annotate(
            f"{title(record, records)}\n$L_h = {setting['lipschitz']}$\n"
            f"n = {setting['samples']:,}{' (reduced)' if record.changes else ''}",
            (0.97, 0.05),
            xycoords="axes fraction",
            ha="right",
            fontsize=7.5,
            color=INK,
        )
    for axes in grid[-1]:
        axes.set_xlabel("k")
    handles = [
        handle("rows of the state (D numbers)", color=_ROWS, linewidth=6),
        handle("whole states (N x D numbers)", color=_STATES, linewidth=6),
        handle("median, rows", color=INK, marker="_", linestyle="none"),
    ]
    legend(figure, handles, 3, "distribution over the samples, 1 % to 99 %")
    return figure


def _panel(axes: Axes, estimates: Sequence[Estimate]) -> None:
    for position, estimate in enumerate(estimates):
        for name, color in (("rows", _ROWS), ("states", _STATES)):
            _violin(axes, position, estimate[name]["percentiles"], color)
        median = estimate["rows"]["percentiles"][50]
        axes.plot([position], [median], marker="_", color=INK, markersize=9)
    axes.set_xticks(range(len(estimates)), [str(e["steps"]) for e in estimates])
    axes.set_ylim(top=1.005)
    bare(axes, "y")


def _violin(axes: Axes, position: int, percentiles: Sequence[float], color: str) -> None:
    """Draw the density that the percentiles 1 to 99 stand for, the same width for all."""
    points = np.asarray(percentiles[1:-1])
    spread = max(points.std(), 1e-4)
    grid = np.linspace(points[0], points[-1], 80)
    width = 0.5 * spread * len(points) ** -0.2
    density = np.exp(-0.5 * ((grid[:, None] - points) / width) ** 2).sum(axis=1)
    half = _HALF * density / density.max()
    axes.fill_betweenx(grid, position - half, position + half, color=color, linewidth=0.4)
