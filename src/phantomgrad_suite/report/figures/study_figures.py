"""The figures of the studies: Figures 1 and 4, Table 2, and throughput."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from phantomgrad_suite.report.figures import style
from phantomgrad_suite.report.studies import costs, parts, precision
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import StudyRecord

_ROWS, _STATES = "#9ecae1", "#08519c"
_HALF = 0.42  # of the distance between two violins
_LOW, _MEDIAN, _HIGH = 0, 2, 4  # of the recorded quantiles
_RESOLUTION = 1e-6  # of a cosine in float32
_PHASES = dict(zip(("forward", "backward", "update"), style.LINES[1:4], strict=True))
_SOLVED = {
    "objective": r"$\|(I - J)\hat{g} - v\|$",
    "relative_error": r"$\|(I - J)\hat{g} - v\| \,/\, \|\hat{g}\|$",
    "cosine": r"$1 - \cos(\hat{g}, g)$",
    "l1_norm": r"$\|\hat{g}\|_1$",
}


def violin_figure(table: Table) -> Figure:
    """Return the distributions of Figure 1: a row of panels for each F, a column by form and λ."""
    records = precision.by_nonlinearity(table.studies)
    columns = sorted({(e["form"], e["damping"]) for r in records for e in r.numbers["estimates"]})
    size = (2.5 * len(columns) + 0.6, 2.25 * len(records) + 1.1)
    shape = (len(records), len(columns))
    figure, grid = style.panels(*shape, size, table.title, sharey="row", sharex=True)
    for axes_row, record in zip(grid, records, strict=True):
        for axes, (form, damping) in zip(axes_row, columns, strict=True):
            _violins(axes, precision.estimates(record, form, damping))
            axes.set_title(rf"{form}, $\lambda = {damping}$")
        axes_row[0].set_ylabel(r"$\cos(\hat{g}, g)$")
        setting, reduced = record.setting, " (reduced)" if record.changes else ""
        name = parts.named(record, setting["nonlinearity"], records)
        text = f"F: {name}\n$L_h = {setting['lipschitz']}$\nn = {setting['samples']:,}{reduced}"
        look: style.Look = {"ha": "right", "fontsize": 7.5, "color": style.INK}
        axes_row[0].annotate(text, (0.97, 0.05), xycoords="axes fraction", **look)
    for axes in grid[-1]:
        axes.set_xlabel("k")
    handles = [
        style.handle("rows of the state (D numbers)", color=_ROWS, linewidth=6),
        style.handle("whole states (N x D numbers)", color=_STATES, linewidth=6),
        style.handle("median, rows", color=style.INK, marker="_", linestyle="none"),
    ]
    style.legend(figure, handles, "distribution over the samples, 1 % to 99 %")
    return figure


def _violins(axes: Axes, estimates: list[dict[str, Any]]) -> None:
    """Draw the densities that the percentiles 1 to 99 stand for, the same width for all."""
    for position, estimate in enumerate(estimates):
        for name, color in (("rows", _ROWS), ("states", _STATES)):
            points = np.asarray(estimate[name]["percentiles"][1:-1])
            width = 0.5 * max(points.std(), 1e-4) * len(points) ** -0.2
            grid = np.linspace(points[0], points[-1], 80)
            density = np.exp(-0.5 * ((grid[:, None] - points) / width) ** 2).sum(axis=1)
            half = _HALF * density / density.max()
            axes.fill_betweenx(grid, position - half, position + half, color=color, linewidth=0.4)
        median = estimate["rows"]["percentiles"][50]
        axes.plot([position], [median], marker="_", color=style.INK, markersize=9)
    axes.set_xticks(range(len(estimates)), [str(e["steps"]) for e in estimates])
    axes.set_ylim(top=1.005)
    style.bare(axes, "y")


def iteration_figure(table: Table, record: StudyRecord) -> Figure:
    """Return Figure 4 for an F: a row for each Lipschitz constant, a column for each quantity."""
    levels = record.numbers["levels"]
    names = [precision.solver_name(method) for method in levels[0]["methods"]]
    looks = style.looks((re.sub("λ = (.*)", r"$\\lambda = \1$", x) for x in names), marker=None)
    size = (11, 1.9 * len(levels) + 1.2)
    title = f"{table.title}, F: {record.setting['nonlinearity']}"
    figure, grid = style.panels(len(levels), len(_SOLVED), size, title, sharex=True)
    for axes_row, level in zip(grid, levels, strict=True):
        for axes, quantity in zip(axes_row, _SOLVED, strict=True):
            for method, look in zip(level["methods"], looks.values(), strict=False):
                values = np.asarray(method[quantity], dtype=float)  # (iterations, quantiles)
                if quantity == "cosine":
                    values = np.maximum(1 - values[:, ::-1], _RESOLUTION)
                first = 0 if method["damping"] is None else 1
                steps = np.arange(first, first + len(values))
                axes.plot(steps, values[:, _MEDIAN], linewidth=1.1 if first else 1.4, **look)
                band = {"color": look["color"], "alpha": 0.12, "linewidth": 0}
                axes.fill_between(steps, values[:, _LOW], values[:, _HIGH], **band)
            axes.set_yscale("log")
            style.bare(axes, "y")
        axes_row[-1].axhline(level["l1_norm"][_MEDIAN], linewidth=0.9, **style.DOTTED)
        condition = float(f"{level['condition']:.3g}")
        axes_row[0].set_ylabel(f"$L_h = {level['lipschitz']}$\nκ = {condition:,g}")
    for top, bottom, heading in zip(grid[0], grid[-1], _SOLVED.values(), strict=True):
        top.set_title(heading, fontweight="normal", loc="center")
        bottom.set_xlabel("iteration of Broyden's method, or k")
    handles = [style.handle(name, linewidth=1.4, **look) for name, look in looks.items()]
    handles.append(style.handle(r"exact, $\|g\|_1$", **style.DOTTED))
    style.legend(figure, handles, "median over the samples; band: 5 % to 95 %")
    return figure


def scaling_figure(table: Table) -> Figure:
    """Return Table 2 with the fitted laws, a row of panels for each device."""
    records, quantities = table.studies, costs.COSTS
    looks = style.looks(method["name"] for method in records[0].numbers["methods"])
    size = (9.6, 2.7 * len(records) + 0.9)
    figure, grid = style.panels(len(records), len(quantities), size, table.title)
    for axes_row, record in zip(grid, records, strict=True):
        for axes, (name, (title, unit, scale)) in zip(axes_row, quantities.items(), strict=True):
            for method, look in zip(record.numbers["methods"], looks.values(), strict=False):
                sizes, points = method["sizes"], [value * scale for value in method[name]]
                marks = {**look, "linestyle": "none", "markersize": 5, "fillstyle": "none"}
                axes.plot(sizes, points, **marks)
                between, curve = np.linspace(sizes[0], sizes[-1], 50), method["fits"][name]["curve"]
                fitted = np.polynomial.polynomial.polyval(between, curve) * scale
                axes.plot(between, fitted, linewidth=1.2, **{**look, "marker": None})
            axes.set(title=title, ylabel=unit, xlabel="k (phantom) or K (implicit)")
            axes.set_ylim(bottom=0)
            style.bare(axes, "y")
    handles = [style.handle(name, markersize=5, **look) for name, look in looks.items()]
    style.legend(figure, handles, "points: measured; lines: least squares")
    return figure


def bar_figure(table: Table) -> Figure:
    """Return milliseconds per sample by phase: a panel for each record, a bar for each row."""
    heights = [0.42 * len(record.numbers["rows"]) + 0.7 for record in table.studies]
    size, ratios = (8.4, sum(heights) + 0.9), {"height_ratios": heights}
    figure, grid = style.panels(len(heights), 1, size, table.title, gridspec_kw=ratios)
    for axes, record in zip(grid[:, 0], table.studies, strict=True):
        rows = record.numbers["rows"]
        for y, row in enumerate(rows):
            left = 0.0
            for phase, (color, _) in _PHASES.items():
                width = row["seconds"][phase]["median"] / row["batch"] * 1e3
                axes.barh(y, width, left=left, height=0.62, color=color)
                left += width
            faster = costs.faster(row, "step")
            axes.text(left, y, f" {faster}", va="center", color=style.INK, fontsize=7.5)
        axes.set_yticks(range(len(rows)), [style.pretty(costs.row_name(row)) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(f"milliseconds per {rows[0]['unit'].removesuffix('s')}")
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
        style.bare(axes, "x")
        axes.set_title(parts.place(record))
    patches = [Patch(color=color, label=phase) for phase, (color, _) in _PHASES.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return figure
