"""Figure 1: the precision of the phantom gradient in the synthetic setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phantomgrad_suite.report.studies import page
from phantomgrad_suite.report.style import INK, bare, legend, titled
from phantomgrad_suite.runs.records import StudyRecord

TITLE = "Figure 1: Precision of the phantom gradient in the synthetic setting"
_ORDER = ("tanh", "relu", "linear")
_ROWS, _STATES = "#9ecae1", "#08519c"
_HALF = 0.42  # of the distance between two values of k

Estimate = dict[str, Any]


def table(records: Sequence[StudyRecord]) -> str:
    """Return the mean cosine and norm ratio of every estimate, a table for each F."""
    parts = []
    for record in _in_order(records):
        parts += [
            f"## F: {page.name(record, _name(record), records)}",
            _exact(record),
            _means(record),
        ]
    return page.page(
        TITLE,
        "Cosine similarity to the exact gradient by the input u, over random pairs (u, y): the "
        "mean over whole N x D states, in brackets over their rows; then the mean ratio of the "
        "norms.",
        *parts,
        page.checks(records),
        page.provenance(records),
    )


def figures(records: Sequence[StudyRecord]) -> dict[str, Figure]:
    """Return the distributions: a row of panels for each F."""
    records = _in_order(records)
    panels = [(form, damping) for form in ("NPG", "UPG") for damping in _dampings(records)]
    figure = Figure(
        figsize=(2.5 * len(panels) + 0.6, 2.25 * len(records) + 1.1), layout="constrained"
    )
    grid = figure.subplots(len(records), len(panels), sharey="row", sharex=True, squeeze=False)
    for axes_row, record in zip(grid, records, strict=True):
        for axes, (form, damping) in zip(axes_row, panels, strict=True):
            _panel(axes, _select(record, form, damping))
            axes.set_title(rf"{form}, $\lambda = {damping}$")
        axes_row[0].set_ylabel(r"$\cos(\hat{g}, g)$")
        setting = record.setting
        axes_row[0].annotate(
            f"F: {page.name(record, _name(record), records)}\n$L_h = {setting['lipschitz']}$\n"
            f"n = {setting['samples']:,}{' (reduced)' if record.changes else ''}",
            (0.97, 0.05),
            xycoords="axes fraction",
            ha="right",
            fontsize=7.5,
            color=INK,
        )
    for axes in grid[-1]:
        axes.set_xlabel("k")
    titled(figure, TITLE)
    handles = [
        Line2D([], [], color=_ROWS, linewidth=6, label="rows of the state (D numbers)"),
        Line2D([], [], color=_STATES, linewidth=6, label="whole states (N x D numbers)"),
        Line2D([], [], color=INK, marker="_", linestyle="none", label="median, rows"),
    ]
    legend(figure, handles, 3, "distribution over the samples, 1 % to 99 %")
    return {"figure1": figure}


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


def _means(record: StudyRecord) -> str:
    forms = [(form, d) for form in ("NPG", "UPG") for d in _dampings([record])]
    headings = [
        "k",
        *(f"{form}, λ = {d}" for form, d in forms),
        *(f"norm, {form}, λ = {d}" for form, d in forms),
    ]
    columns = [_select(record, form, d) for form, d in forms]
    rows = []
    for estimates in zip(*columns, strict=True):
        cosines = [f"{e['states']['mean']:.4f} ({e['rows']['mean']:.4f})" for e in estimates]
        ratios = [f"{e['norm_ratio']['mean']:.3f}" for e in estimates]
        rows.append([str(estimates[0]["steps"]), *cosines, *ratios])
    return page.table(headings, rows, words=0)


def _exact(record: StudyRecord) -> str:
    exact, setting = record.numbers["exact"], record.setting
    agreement = exact["agreement"]["percentiles"][0]
    reduced = f" **Reduced: {', '.join(record.changes)}.**" if record.changes else ""
    return (
        f"N = {setting['rows']}, D = {setting['size']}, L = {setting['lipschitz']}, "
        f"{setting['samples']:,} samples.{reduced} After {setting['iterations']} iterations the "
        f"two exact gradients agree to a cosine of {agreement:.7f} or better (the paper: above "
        f"0.9999), and the relative error of h* is at most "
        f"{exact['residual']['percentiles'][-1]:.2g}."
    )


def _select(record: StudyRecord, form: str, damping: float) -> list[Estimate]:
    estimates = record.numbers["estimates"]
    return [e for e in estimates if e["form"] == form and e["damping"] == damping]


def _dampings(records: Sequence[StudyRecord]) -> list[float]:
    return sorted({e["damping"] for r in records for e in r.numbers["estimates"]})


def _in_order(records: Sequence[StudyRecord]) -> list[StudyRecord]:
    names = [*_ORDER, *sorted({r.setting["nonlinearity"] for r in records} - set(_ORDER))]
    return sorted(records, key=lambda r: (names.index(r.setting["nonlinearity"]), r.instance))


def _name(record: StudyRecord) -> str:
    return str(record.setting["nonlinearity"])
