"""Figure 4: gradient solvers along their iterations."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phantomgrad_suite.report.figures.style import (
    DOTTED,
    Look,
    bare,
    handle,
    legend,
    looks,
    panels,
)
from phantomgrad_suite.report.studies.conditioning import MEDIAN, Method, label
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import StudyRecord

_QUANTITIES = {
    "objective": r"$\|(I - J)\hat{g} - v\|$",
    "relative_error": r"$\|(I - J)\hat{g} - v\| \,/\, \|\hat{g}\|$",
    "cosine": r"$1 - \cos(\hat{g}, g)$",
    "l1_norm": r"$\|\hat{g}\|_1$",
}
_LOW, _HIGH = 0, 4  # of the recorded quantiles
_RESOLUTION = 1e-6  # of a cosine in float32


def iteration_figure(table: Table, record: StudyRecord) -> Figure:
    """Return a row for each Lipschitz constant, a column for each quantity."""
    levels = record.numbers["levels"]
    styles = looks((label(m, r"$\lambda$") for m in levels[0]["methods"]), markers=False)
    size = (11, 1.9 * len(levels) + 1.2)
    title = f"{table.title}, F: {record.setting['nonlinearity']}"
    figure, grid = panels(len(levels), len(_QUANTITIES), size, title, sharex=True)
    for axes_row, level in zip(grid, levels, strict=True):
        for axes, quantity in zip(axes_row, _QUANTITIES, strict=True):
            for method, look in zip(level["methods"], styles.values(), strict=False):
                _draw(axes, method, quantity, look)
            axes.set_yscale("log")
            bare(axes, "y")
        axes_row[-1].axhline(level["l1_norm"][MEDIAN], linewidth=0.9, **DOTTED)
        condition = float(f"{level['condition']:.3g}")
        axes_row[0].set_ylabel(f"$L_h = {level['lipschitz']}$\nκ = {condition:,g}")
    for axes, heading in zip(grid[0], _QUANTITIES.values(), strict=True):
        axes.set_title(heading, fontweight="normal", loc="center")
    for axes in grid[-1]:
        axes.set_xlabel("iteration of Broyden's method, or k")
    handles = [handle(name, linewidth=1.4, **look) for name, look in styles.items()]
    handles.append(handle(r"exact, $\|g\|_1$", **DOTTED))
    legend(figure, handles, len(handles), "median over the samples; band: 5 % to 95 %")
    return figure


def _draw(axes: Axes, method: Method, quantity: str, look: Look) -> None:
    values = np.asarray(method[quantity], dtype=float)  # (iterations, quantiles)
    if quantity == "cosine":
        values = np.maximum(1 - values[:, ::-1], _RESOLUTION)
    is_phantom = method["damping"] is not None
    steps = np.arange(is_phantom, is_phantom + len(values))
    axes.plot(steps, values[:, MEDIAN], linewidth=1.1 if is_phantom else 1.4, **look)
    band = {"color": look["color"], "alpha": 0.12, "linewidth": 0}
    axes.fill_between(steps, values[:, _LOW], values[:, _HIGH], **band)
