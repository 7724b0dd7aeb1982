"""Table 2: the paper's complexity of every gradient beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phantomgrad_suite.report.studies import page
from phantomgrad_suite.report.style import LINES, bare, legend, titled
from phantomgrad_suite.runs.records import StudyRecord

TITLE = "Table 2: Time and memory of the gradient"
# As printed. The peak of implicit differentiation is that of its unrolled pretraining.
_PAPER = {
    "Implicit": {"seconds": "O(K)", "graph_bytes": "O(1)", "peak_bytes": "O(k)"},
    "UPG": {"seconds": "O(k)", "graph_bytes": "O(k)", "peak_bytes": "O(k)"},
    "NPG": {"seconds": "O(k)", "graph_bytes": "O(1)", "peak_bytes": "O(1)"},
}
_QUANTITIES = (
    ("seconds", "Time", "ms", 1e3),
    ("graph_bytes", "Mem", "MiB", 2**-20),
    ("peak_bytes", "Peak Mem", "MiB", 2**-20),
)

Method = dict[str, Any]

_LOOKS: list[dict[str, Any]] = [
    {"color": color, "linestyle": dashes, "marker": marker}
    for (color, dashes), marker in zip(LINES, ("o", "s", "^", "D"), strict=False)
]


def table(records: Sequence[StudyRecord]) -> str:
    """Return the paper's entries, what was measured, and the fitted lines."""
    parts = []
    for record in records:
        parts += [
            f"## On {page.name(record, page.hardware(record), records)}",
            _entries(record),
            "",
            _measured(record),
        ]
    return page.page(
        TITLE,
        "K: evaluations of the adjoint solver; k: steps. Beside each entry of the paper the order "
        "that the measurement amounts to, and the slope of the fitted law per k or K (at both ends "
        "where it is no line).",
        *parts,
        page.bullets(
            (
                "Time: attaching the equilibrium and pulling a cotangent back to weight and input; "
                "the forward solve is not in it.",
                "Mem: what the graph keeps between the two. Peak Mem: by how much memory in use "
                "rises at its highest point (every allocation counted).",
                "The paper's peak of implicit differentiation, O(k), is that of the unrolled "
                "pretraining it needs; ours is of the gradient alone. Broyden's method keeps a "
                "vector for each iteration while it solves, so its peak is O(K), and its time "
                "grows faster than K; fixed-point iteration keeps none.",
            )
        ),
        page.checks(records),
        page.provenance(records),
    )


def figures(records: Sequence[StudyRecord]) -> dict[str, Figure]:
    """Return time and memory against k or K, with the fitted lines."""
    figure = Figure(figsize=(9.6, 2.7 * len(records) + 0.9), layout="constrained")
    grid = figure.subplots(len(records), len(_QUANTITIES), squeeze=False)
    for axes_row, record in zip(grid, records, strict=True):
        for axes, (name, title, unit, scale) in zip(axes_row, _QUANTITIES, strict=True):
            for method, look in zip(record.numbers["methods"], _LOOKS, strict=False):
                _draw(axes, method, name, scale, look)
            axes.set_title(title)
            axes.set_ylabel(unit)
            axes.set_xlabel("k (phantom) or K (implicit)")
            axes.set_ylim(bottom=0)
            bare(axes, "y")
    titled(figure, TITLE)
    handles = [
        Line2D([], [], **look, markersize=5, label=method["name"])
        for method, look in zip(records[0].numbers["methods"], _LOOKS, strict=False)
    ]
    legend(figure, handles, len(handles), "points: measured; lines: least squares")
    return {"table2": figure}


def _draw(axes: Axes, method: Method, name: str, scale: float, look: dict[str, Any]) -> None:
    sizes, curve = method["sizes"], method["fits"][name]["curve"]
    values = [value * scale for value in method[name]]
    axes.plot(sizes, values, **{**look, "linestyle": "none"}, markersize=5, fillstyle="none")
    between = np.linspace(sizes[0], sizes[-1], 50)
    fitted = np.polynomial.polynomial.polyval(between, curve) * scale
    axes.plot(between, fitted, color=look["color"], linestyle=look["linestyle"], linewidth=1.2)


def _entries(record: StudyRecord) -> str:
    headings = ["Method"]
    for _, title, unit, _ in _QUANTITIES:
        headings += [f"{title}, paper", f"{title}, measured", f"{unit} per k or K", "R²"]
    rows = []
    for method in record.numbers["methods"]:
        paper = _PAPER.get(method["name"].split(",")[0], {})
        row = [method["name"]]
        for name, _, _, scale in _QUANTITIES:
            fit = method["fits"][name]
            row += [
                paper.get(name, ""),
                fit["order"],
                _slope(fit, method["sizes"], scale),
                f"{fit['r2']:.3f}",
            ]
        rows.append(row)
    return page.table(headings, rows)


def _slope(fit: dict[str, Any], sizes: Sequence[int], scale: float) -> str:
    """Print the slope, of a parabola those at both ends."""
    if len(fit["curve"]) < 3:
        return f"{fit['slope'] * scale:.3g}"
    _, linear, quadratic = fit["curve"]
    ends = [(linear + 2 * quadratic * size) * scale for size in (sizes[0], sizes[-1])]
    return f"{ends[0]:.2g} to {ends[1]:.2g}"


def _measured(record: StudyRecord) -> str:
    rows = []
    for method in record.numbers["methods"]:
        for i, size in enumerate(method["sizes"]):
            values = [f"{method[name][i] * scale:.2f}" for name, _, _, scale in _QUANTITIES]
            rows.append((method["name"], f"{method['variable']} = {size}", *values))
    headings = ("Method", "Size", *(f"{title} ({unit})" for _, title, unit, _ in _QUANTITIES))
    clock, state = record.numbers["clock"], record.numbers["state_bytes"] / 2**20
    return f"Medians ({clock}); one state has {state:.3g} MiB.\n\n" + page.table(
        headings, rows, words=2
    )
