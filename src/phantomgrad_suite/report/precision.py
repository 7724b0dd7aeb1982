"""Figure 2: precision of gradient estimators, and spectral radii, along real training runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phantomgrad_suite.report.layout import Line, Table
from phantomgrad_suite.report.style import LINES, MUTED, bare, legend, titled
from phantomgrad_suite.runs.records import Record

STEP = "precision/step"
_ESTIMATE = re.compile(r"precision/(upg|npg)_k(\d+)_d([\d.]+)/cosine$")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_RADII = (
    ("F", r"$\rho(\partial F / \partial h)$"),
    ("F_damped", r"$\rho(\partial F_\lambda / \partial h)$"),
)


def precision_figures(table: Table) -> dict[str, Figure]:
    """Return the cosines along each run, and the spectral radii of all runs of a data set.

    As in the paper the training step is the vertical axis of the cosines.
    """
    drawn = {}
    lines = [line for line in table.lines if _measured(line)]
    for line in lines:
        name = line.row.split("/")[-1].replace(".", "")
        drawn[f"{table.name}_{name}"] = _cosines(table, line)
    for dataset in dict.fromkeys(line.dataset for line in lines):
        mine = [line for line in lines if line.dataset == dataset]
        drawn[f"{table.name}_{dataset.lower()}_radius"] = _radii(table, mine)
    return drawn


def _cosines(table: Table, line: Line) -> Figure:
    record = _measured(line)[0]
    estimates = sorted(
        (form.upper(), int(k), float(d), name)
        for name in record.curves
        for form, k, d in (m.groups() for m in [_ESTIMATE.match(name)] if m)
    )
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    keys = list(dict.fromkeys((k, d) for _, k, d, _ in estimates))
    looks = [(color, marker) for (color, _), marker in zip(LINES, _MARKERS, strict=False)]
    styles = dict(zip(keys, looks, strict=False))
    for axes, form in zip(panels, ("NPG", "UPG"), strict=True):
        for other, k, d, name in estimates:
            if other == form:
                color, marker = styles[k, d]
                values, steps = record.curves[name], record.curves[STEP]
                axes.plot(values, steps, marker, color=color, markersize=3.2)
        axes.set_title(f"{'(a)' if form == 'NPG' else '(b)'} {form}")
        axes.set_xlabel(r"$\cos(\hat{g}, g)$")
        bare(axes, "x")
    panels[0].set_ylabel("training step")
    titled(figure, f"{table.title}: {line.dataset}, trained by {line.method}")
    handles = [
        Line2D(
            [], [], color=color, marker=marker, linestyle="none", label=rf"$k = {k}, \lambda = {d}$"
        )
        for (k, d), (color, marker) in styles.items()
    ]
    legend(figure, handles, len(handles), "cosine to the exact gradient of the parameters of F")
    return figure


def _radii(table: Table, lines: Sequence[Line]) -> Figure:
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    looks = [(*style, marker) for style, marker in zip(LINES, _MARKERS, strict=False)]
    for axes, (name, label) in zip(panels, _RADII, strict=True):
        for line, look in zip(lines, looks, strict=False):
            for record in _measured(line):
                _radius(axes, record, name, look)
        axes.axhline(1, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set_title(label, fontweight="normal")
        axes.set_xlabel("training step")
        bare(axes, "y")
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("spectral radius")
    titled(figure, f"Spectral radii along training: {lines[0].dataset}")
    handles = [
        Line2D(
            [], [], color=color, linestyle=dashes, marker=marker, markersize=4, label=line.method
        )
        for line, (color, dashes, marker) in zip(lines, looks, strict=False)
    ]
    legend(figure, handles, len(handles), "largest over layers and samples of a batch")
    return figure


def _radius(axes: Axes, record: Record, name: str, look: tuple[str, Any, str]) -> None:
    color, dashes, marker = look
    values = np.asarray(record.curves[f"precision/spectral_radius/{name}"], dtype=float)
    axes.plot(
        record.curves[STEP],
        values,
        color=color,
        linestyle=dashes,
        linewidth=1.2,
        marker=marker,
        markersize=4,
        markevery=max(len(values) // 10, 1),
    )


def _measured(line: Line) -> list[Record]:
    records = line.summary.records if line.summary else ()
    return [record for record in records if STEP in record.curves]
