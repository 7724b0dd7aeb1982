"""Table 2: the paper's complexity of every gradient beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phantomgrad.records import StudyRecord
from phantomgrad.report.studies import page
from phantomgrad.report.style import LINES, bare, legend, titled

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


def table(records: Sequence[StudyRecord]) -> str:
    """Return the paper's entries, what was measured, and the fitted lines."""
    parts = []
    for record in records:
        parts += [f"## On {page.hardware(record)}", _entries(record), "", _measured(record)]
    return page.page(
        TITLE,
        "K: evaluations of the adjoint solver; k: steps. Beside each entry of the paper the order "
        "that the measurement amounts to, and the slope of the fitted line per k or K.",
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
            for method, (color, dashes) in zip(record.numbers["methods"], LINES, strict=False):
                _draw(axes, method, name, scale, (color, dashes))
            axes.set_title(title)
            axes.set_ylabel(unit)
            axes.set_xlabel("k (phantom) or K (implicit)")
            axes.set_ylim(bottom=0)
            bare(axes, "y")
    titled(figure, TITLE)
    handles = [
        Line2D([], [], color=color, linestyle=dashes, marker="o", markersize=4, label=m["name"])
        for m, (color, dashes) in zip(records[0].numbers["methods"], LINES, strict=False)
    ]
    legend(figure, handles, len(handles), "points: measured; lines: least squares")
    return {"table2": figure}


def _draw(axes: Axes, method: Method, name: str, scale: float, style: tuple[str, Any]) -> None:
    color, dashes = style
    sizes, fit = method["sizes"], method["fits"][name]
    values = [value * scale for value in method[name]]
    axes.plot(sizes, values, "o", color=color, markersize=4)
    ends = [sizes[0], sizes[-1]]
    line = [(fit["intercept"] + fit["slope"] * size) * scale for size in ends]
    axes.plot(ends, line, color=color, linestyle=dashes, linewidth=1.2)


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
                f"{fit['slope'] * scale:.3g}",
                f"{fit['r2']:.3f}",
            ]
        rows.append(row)
    return page.table(headings, rows)


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
