"""Figure 4: gradient solvers along their iterations, as conditioning gets worse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phantomgrad_suite.report.studies import page
from phantomgrad_suite.report.style import LINES, MUTED, bare, legend, titled
from phantomgrad_suite.runs.records import StudyRecord

TITLE = "Figure 4: Gradient solvers under ill-conditioning"
_QUANTITIES = (
    ("objective", r"$\|(I - J)\hat{g} - v\|$", "log"),
    ("relative_error", r"$\|(I - J)\hat{g} - v\| \,/\, \|\hat{g}\|$", "log"),
    ("cosine", r"$1 - \cos(\hat{g}, g)$", "log"),
    ("l1_norm", r"$\|\hat{g}\|_1$", "log"),
)
_LOW, _MEDIAN, _HIGH = 0, 2, 4  # of the recorded quantiles
_RESOLUTION = 1e-6  # of a cosine in float32

Level = dict[str, Any]
Method = dict[str, Any]


def table(records: Sequence[StudyRecord]) -> str:
    """Return where every method ends, a table for each F."""
    parts = []
    for record in records:
        last = record.setting["iterations"]
        parts += [
            f"## F: {page.name(record, record.setting['nonlinearity'], records)}",
            f"After {last} iterations of Broyden's method, or at k = {last}; medians over "
            f"{record.setting['samples']} samples.",
            _ends(record),
        ]
    return page.page(
        TITLE,
        "v is the gradient of the loss by the equilibrium h*, J the Jacobian there, g the exact "
        "solution of (I - J) g = v by a dense solve, in the paper's layout. κ is the condition "
        "number of I - J. A Lipschitz constant close to 1 makes the system ill-conditioned only "
        "where F is (close to) linear: elsewhere the derivative of the nonlinearity keeps J away.",
        *parts,
        page.checks(records),
        page.provenance(records),
    )


def figures(records: Sequence[StudyRecord]) -> dict[str, Figure]:
    """Return a figure for each F: a row for each Lipschitz constant, a column a quantity."""
    names = [f"figure4_{r.setting['nonlinearity']}" for r in records]
    several = {name for name in names if names.count(name) > 1}
    return {
        f"{name}_{record.instance}" if name in several else name: _figure(record)
        for name, record in zip(names, records, strict=True)
    }


def _figure(record: StudyRecord) -> Figure:
    levels = record.numbers["levels"]
    figure = Figure(figsize=(11, 1.9 * len(levels) + 1.2), layout="constrained")
    grid = figure.subplots(len(levels), len(_QUANTITIES), sharex=True, squeeze=False)
    for axes_row, level in zip(grid, levels, strict=True):
        for axes, (name, _, scale) in zip(axes_row, _QUANTITIES, strict=True):
            for method, style in zip(level["methods"], LINES, strict=False):
                _draw(axes, method, name, style)
            axes.set_yscale(scale)
            bare(axes, "y")
        exact = level["l1_norm"][_MEDIAN]
        axes_row[-1].axhline(exact, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        condition = float(f"{level['condition']:.3g}")
        axes_row[0].set_ylabel(f"$L_h = {level['lipschitz']}$\nκ = {condition:,g}")
    for axes, (_, label, _) in zip(grid[0], _QUANTITIES, strict=True):
        axes.set_title(label, fontweight="normal", loc="center")
    for axes in grid[-1]:
        axes.set_xlabel("iteration of Broyden's method, or k")
    titled(figure, f"{TITLE}, F: {record.setting['nonlinearity']}")
    _legend(figure, levels[0]["methods"])
    return figure


def _draw(axes: Axes, method: Method, name: str, style: tuple[str, Any]) -> None:
    color, dashes = style
    values = np.asarray(method[name], dtype=float)  # (iterations, quantiles)
    if name == "cosine":
        values = np.maximum(1 - values[:, ::-1], _RESOLUTION)
    first = 0 if method["damping"] is None else 1
    steps = np.arange(first, first + len(values))
    width = 1.4 if method["damping"] is None else 1.1
    axes.plot(steps, values[:, _MEDIAN], color=color, linestyle=dashes, linewidth=width)
    low, high = values[:, _LOW], values[:, _HIGH]
    axes.fill_between(steps, low, high, color=color, alpha=0.12, linewidth=0)


def _legend(figure: Figure, methods: Sequence[Method]) -> None:
    handles = [
        Line2D([], [], color=color, linestyle=dashes, linewidth=1.4, label=_name(method))
        for method, (color, dashes) in zip(methods, LINES, strict=False)
    ]
    handles.append(Line2D([], [], color=MUTED, linestyle=(0, (1, 2)), label=r"exact, $\|g\|_1$"))
    legend(figure, handles, len(handles), "median over the samples; band: 5 % to 95 %")


def _ends(record: StudyRecord) -> str:
    headings = ("L", "κ", "Method", "Objective", "Relative error", "Cosine", "L1 norm", "of g")
    rows = []
    for level in record.numbers["levels"]:
        for method in level["methods"]:
            values = [method[name][-1][_MEDIAN] for name, _, _ in _QUANTITIES]
            rows.append(
                (
                    f"{level['lipschitz']}",
                    f"{level['condition']:.3g}",
                    _name(method).replace("$", "").replace(r"\lambda", "λ"),
                    *(page.number(value, ".2e") for value in values[:2]),
                    page.number(values[2], ".4f"),
                    *(page.number(x, ".4g") for x in (values[3], level["l1_norm"][_MEDIAN])),
                )
            )
    return page.table(headings, rows, words=3)


def _name(method: Method) -> str:
    if method["damping"] is None:
        return str(method["name"])
    return rf"{method['name']}, $\lambda = {method['damping']}$"
