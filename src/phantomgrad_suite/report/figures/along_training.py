"""Figure 2: precision of gradient estimators, and spectral radii, along real training runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures.style import DOTTED, bare, handle, legend, looks, panels
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import Record

STEP = "precision/step"
_ESTIMATE = re.compile(r"precision/(upg|npg)_k(\d+)_d([\d.]+)/cosine$")
_RADII = {
    "F": r"$\rho(\partial F / \partial h)$",
    "F_damped": r"$\rho(\partial F_\lambda / \partial h)$",
}


def measured(line: Line) -> list[Record]:
    """Return the runs of a line that measured the precision of gradients."""
    records = line.runs.records if line.runs else ()
    return [record for record in records if STEP in record.curves]


def cosine_figure(table: Table, line: Line) -> Figure:
    """Return the cosines of all estimates along a run; as in the paper steps go upwards."""
    record = measured(line)[0]
    matches = [(name, _ESTIMATE.match(name)) for name in record.curves]
    estimates = sorted((m[1].upper(), int(m[2]), float(m[3]), name) for name, m in matches if m)
    title = f"{table.title}: {line.dataset}, trained by {line.method}"
    figure, grid = panels(1, 2, (8.4, 4.4), title, sharex=True, sharey=True)
    styles = looks((k, damping) for _, k, damping, _ in estimates)
    for look in styles.values():
        look["linestyle"] = "none"
    for axes, form, letter in zip(grid[0], ("NPG", "UPG"), "ab", strict=True):
        for other, k, damping, name in estimates:
            if other == form:
                values, steps = record.curves[name], record.curves[STEP]
                axes.plot(values, steps, markersize=3.2, **styles[k, damping])
        axes.set_title(f"({letter}) {form}")
        axes.set_xlabel(r"$\cos(\hat{g}, g)$")
        bare(axes, "x")
    grid[0, 0].set_ylabel("training step")
    handles = [handle(rf"$k = {k}, \lambda = {d}$", **look) for (k, d), look in styles.items()]
    note = "cosine to the exact gradient of the parameters of F"
    legend(figure, handles, len(handles), note)
    return figure


def radius_figure(lines: Sequence[Line]) -> Figure:
    """Return the spectral radii with and without damping of all runs on a data set."""
    title = f"Spectral radii along training: {lines[0].dataset}"
    figure, grid = panels(1, 2, (8.4, 3.6), title, sharex=True, sharey=True)
    styles = looks(line.row for line in lines)
    for axes, (name, label) in zip(grid[0], _RADII.items(), strict=True):
        for line in lines:
            for record in measured(line):
                values = np.asarray(record.curves[f"precision/spectral_radius/{name}"], dtype=float)
                axes.plot(
                    *(record.curves[STEP], values),
                    linewidth=1.2,
                    markersize=4,
                    markevery=max(len(values) // 10, 1),
                    **styles[line.row],
                )
        axes.axhline(1, linewidth=0.8, **DOTTED)
        axes.set_title(label, fontweight="normal")
        axes.set_xlabel("training step")
        bare(axes, "y")
    grid[0, 0].set_ylim(bottom=0)
    grid[0, 0].set_ylabel("spectral radius")
    handles = [handle(line.method, markersize=4, **styles[line.row]) for line in lines]
    legend(figure, handles, len(handles), "largest over layers and samples of a batch")
    return figure
