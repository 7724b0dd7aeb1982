"""The figures of the studies: Figures 1 and 4, Table 2, and throughput."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures import plot, style
from phantomgrad_suite.report.figures.plot import Mark, Panel, Plot, mark
from phantomgrad_suite.report.studies import costs, parts, precision
from phantomgrad_suite.report.studies.parts import Numbers
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import StudyRecord

_ROWS, _STATES = "#9ecae1", "#08519c"
_LOW, _MEDIAN, _HIGH = 0, 2, 4  # of the recorded quantiles
_RESOLUTION = 1e-6  # of a cosine in float32
_PHASES = {phase: style.LINES[i][0] for i, phase in enumerate(("forward", "backward", "update"), 1)}
_SOLVED = {
    "objective": r"$\|(I - J)\hat{g} - v\|$",
    "relative_error": r"$\|(I - J)\hat{g} - v\| \,/\, \|\hat{g}\|$",
    "cosine": r"$1 - \cos(\hat{g}, g)$",
    "l1_norm": r"$\|\hat{g}\|_1$",
}


def violins(table: Table) -> Iterator[Plot]:
    """Yield the distributions of Figure 1: a row of panels for each F, a column by form and λ."""
    records = precision.by_nonlinearity(table.studies)
    columns = sorted({(e["form"], e["damping"]) for r in records for e in r.numbers["estimates"]})
    panels = [[_violins(record, form, d) for form, d in columns] for record in records]
    for row, record in zip(panels, records, strict=True):
        setting, reduced = record.setting, " (reduced)" if record.changes else ""
        name = parts.named(record, setting["nonlinearity"], records)
        text = f"F: {name}\n$L_h = {setting['lipschitz']}$\nn = {setting['samples']:,}{reduced}"
        look = {"ha": "right", "fontsize": 7.5, "xycoords": "axes fraction"}
        note = mark(Axes.annotate, text, (0.97, 0.05), **look)
        row[0] = replace(row[0], marks=[*row[0].marks, note])
        row[0].axes["ylabel"] = r"$\cos(\hat{g}, g)$"
    for panel in panels[-1]:
        panel.axes["xlabel"] = "k"
    legend: list[tuple[str, style.Look]] = [
        ("rows of the state (D numbers)", {"color": _ROWS, "linewidth": 6}),
        ("whole states (N x D numbers)", {"color": _STATES, "linewidth": 6}),
        ("median, rows", _MEDIAN_MARK),
    ]
    notes, shared = "distribution over the samples, 1 % to 99 %", {"sharex": True, "sharey": "row"}
    size = (2.5 * len(columns) + 0.6, 2.25 * len(records) + 1.1)
    yield Plot(*_names(table), size, panels, legend, notes, shared)


_MEDIAN_MARK = {"color": style.INK, "marker": "_", "linestyle": "none", "markersize": 9}


def _violins(record: StudyRecord, form: str, damping: float) -> Panel:
    """Return the densities that the percentiles 1 to 99 stand for, the same width for all."""
    estimates = precision.estimates(record, form, damping)
    positions = range(len(estimates))
    marks: list[Mark] = [
        mark(_draw_violins, [e[name]["percentiles"][1:-1] for e in estimates], color)
        for name, color in (("rows", _ROWS), ("states", _STATES))
    ]
    medians = [e["rows"]["percentiles"][50] for e in estimates]
    axes = {
        "title": rf"{form}, $\lambda = {damping}$",
        "ylim": (None, 1.005),
        "xticks": positions,
        "xticklabels": [str(e["steps"]) for e in estimates],
    }
    return Panel([*marks, plot.Line(positions, medians, _MEDIAN_MARK)], axes)


def _draw_violins(axes: Axes, values: list[list[float]], color: str) -> None:
    parts = axes.violinplot(
        values,
        range(len(values)),
        widths=0.84,
        showextrema=False,
        bw_method=lambda kde: 0.5 * kde.scotts_factor(),
    )
    for body in parts["bodies"]:  # type: ignore[attr-defined]
        body.set(color=color, alpha=1, linewidth=0.4)


def iterations(table: Table) -> Iterator[Plot]:
    """Yield a figure for each F."""
    names = [f"figure4_{record.setting['nonlinearity']}" for record in table.studies]
    for name, record in zip(names, table.studies, strict=True):
        unique = f"{name}_{record.instance}" if names.count(name) > 1 else name
        yield _iteration_plot(table, unique, record)


def _iteration_plot(table: Table, name: str, record: StudyRecord) -> Plot:
    """Return Figure 4 for an F: a row for each Lipschitz constant, a column for each quantity."""
    levels = record.numbers["levels"]
    names = [precision.solver_name(method) for method in levels[0]["methods"]]
    looks = style.looks((re.sub("λ = (.*)", r"$\\lambda = \1$", x) for x in names), marker=None)
    panels = []
    for level in levels:
        row = []
        for quantity in _SOLVED:
            methods = zip(level["methods"], looks.values(), strict=True)
            marks: list[Mark] = [_iterations(m, quantity, look) for m, look in methods]
            if quantity == "l1_norm":
                marks.append(mark(Axes.axhline, level["l1_norm"][_MEDIAN], **style.DOTTED))
            row.append(Panel(marks, {"yscale": "log"}))
        condition = float(f"{level['condition']:.3g}")
        row[0].axes["ylabel"] = f"$L_h = {level['lipschitz']}$\nκ = {condition:,g}"
        panels.append(row)
    for top, bottom, heading in zip(panels[0], panels[-1], _SOLVED.values(), strict=True):
        top.axes["title"] = heading
        bottom.axes["xlabel"] = "iteration of Broyden's method, or k"
    return Plot(
        name,
        FIGURES["figure4"].format(**record.setting),
        f"{table.title}, F: {record.setting['nonlinearity']}",
        (11, 1.9 * len(levels) + 1.2),
        panels,
        [*looks.items(), (r"exact, $\|g\|_1$", style.DOTTED)],
        "median over the samples; band: 5 % to 95 %",
        {"sharex": True},
    )


def _iterations(method: Numbers, quantity: str, look: style.Look) -> plot.Line:
    values = np.asarray(method[quantity], dtype=float)  # (iterations, quantiles)
    if quantity == "cosine":
        values = np.maximum(1 - values[:, ::-1], _RESOLUTION)
    first = 0 if method["damping"] is None else 1
    steps = np.arange(first, first + len(values))
    return plot.Line(steps, values[:, _MEDIAN], look, (values[:, _LOW], values[:, _HIGH]))


def scaling(table: Table) -> Iterator[Plot]:
    """Yield Table 2 with the fitted laws, a row of panels for each device."""
    records = table.studies
    looks = style.looks(method["name"] for method in records[0].numbers["methods"])
    panels = []
    for record in records:
        panels.append(list[Panel]())
        for name, (title, unit, scale) in costs.COSTS.items():
            marks = []
            for method, look in zip(record.numbers["methods"], looks.values(), strict=False):
                sizes, points = method["sizes"], [value * scale for value in method[name]]
                hollow = {"linestyle": "none", "markersize": 5, "fillstyle": "none"}
                between, curve = np.linspace(sizes[0], sizes[-1], 50), method["fits"][name]["curve"]
                fitted = np.polynomial.polynomial.polyval(between, curve) * scale
                marks.append(plot.Line(sizes, points, look | hollow))
                marks.append(plot.Line(between, fitted, look | {"marker": None}))
            label = "k (phantom) or K (implicit)"
            axes = {"title": title, "ylabel": unit, "xlabel": label, "ylim": (0, None)}
            panels[-1].append(Panel(marks, axes))
    size, note = (9.6, 2.7 * len(records) + 0.9), "points: measured; lines: least squares"
    yield Plot(*_names(table), size, panels, list(looks.items()), note)


def bars(table: Table) -> Iterator[Plot]:
    """Yield milliseconds per sample by phase: a panel for each record, a bar for each row."""
    panels = []
    for record in table.studies:
        rows = record.numbers["rows"]
        marks = []
        for y, row in enumerate(rows):
            left = 0.0
            for phase, color in _PHASES.items():
                width = row["seconds"][phase]["median"] / row["batch"] * 1e3
                marks.append(mark(Axes.barh, y, width, left=left, height=0.62, color=color))
                left += width
            text = f" {costs.faster(row, 'step')}"
            marks.append(mark(Axes.text, left, y, text, va="center", fontsize=7.5))
        axes = {
            "title": parts.place(record),
            "yticks": range(len(rows)),
            "yticklabels": [style.pretty(costs.row_name(row)) for row in rows],
            "ylim": (len(rows) - 0.5, -0.5),
            "xlabel": f"milliseconds per {rows[0]['unit'].removesuffix('s')}",
            "xmargin": 0.12,
            "xlim": (0, None),
        }
        panels.append([Panel(marks, axes, "x")])
    heights = [0.42 * len(record.numbers["rows"]) + 0.7 for record in table.studies]
    legend = [(phase, {"color": color, "linewidth": 6}) for phase, color in _PHASES.items()]
    size, note = (8.4, sum(heights) + 0.9), "medians; at the end: how many times faster"
    yield Plot(*_names(table), size, panels, legend, note, {"height_ratios": heights})


def _names(table: Table) -> tuple[str, str, str]:
    return table.key, FIGURES[table.key], table.title
