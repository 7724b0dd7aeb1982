"""Figure 2: precision of gradient estimators, and spectral radii, along real training runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures import style
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
    figure, grid = style.panels(1, 2, (8.4, 4.4), title, sharex=True, sharey=True)
    styles = style.looks(((k, damping) for _, k, damping, _ in estimates), linestyle="none")
    for axes, form, letter in zip(grid[0], ("NPG", "UPG"), "ab", strict=True):
        for other, k, damping, name in estimates:
            if other == form:
                values, steps = record.curves[name], record.curves[STEP]
                axes.plot(values, steps, markersize=3.2, **styles[k, damping])
        axes.set(title=f"({letter}) {form}", xlabel=r"$\cos(\hat{g}, g)$")
        style.bare(axes, "x")
    grid[0, 0].set_ylabel("training step")
    names = [rf"$k = {k}, \lambda = {damping}$" for k, damping in styles]
    handles = [style.handle(x, **look) for x, look in zip(names, styles.values(), strict=True)]
    style.legend(figure, handles, "cosine to the exact gradient of the parameters of F")
    return figure


def radius_figure(lines: Sequence[Line]) -> Figure:
    """Return the spectral radii with and without damping of all runs on a data set."""
    title = f"Spectral radii along training: {lines[0].dataset}"
    figure, grid = style.panels(1, 2, (8.4, 3.6), title, sharex=True, sharey=True)
    styles = style.looks((line.row for line in lines), markersize=4)
    for axes, (name, label) in zip(grid[0], _RADII.items(), strict=True):
        for line in lines:
            for record in measured(line):
                values = np.asarray(record.curves[f"precision/spectral_radius/{name}"], dtype=float)
                marks = {"linewidth": 1.2, "markevery": max(len(values) // 10, 1)}
                axes.plot(record.curves[STEP], values, **styles[line.row], **marks)
        axes.axhline(1, linewidth=0.8, **style.DOTTED)
        axes.set_title(label, fontweight="normal")
        axes.set_xlabel("training step")
        style.bare(axes, "y")
    grid[0, 0].set_ylim(bottom=0)
    grid[0, 0].set_ylabel("spectral radius")
    handles = [style.handle(line.method, **styles[line.row]) for line in lines]
    style.legend(figure, handles, "largest over layers and samples of a batch")
    return figure
