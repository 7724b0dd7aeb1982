"""Throughput: what a training step of the paper's rows costs, and what it should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from phantomgrad_suite.report.studies import page
from phantomgrad_suite.report.style import INK, LINES, bare, pretty, titled
from phantomgrad_suite.report.tables import DASH
from phantomgrad_suite.runs.records import StudyRecord

TITLE = "Throughput: a training step of the paper's rows on synthetic batches"
# Seconds of a step of 128 images in the log of the release, MDEQ-Large with UPG on four GPUs.
_LOG = (
    "For MDEQ-Large with UPG the log of the paper's release has 0.59 to 0.60 s for a step of 128 "
    "images on four GPUs of a kind not stated: about 215 images/s."
)
_LOGGED = 215.0
# What rows call their data sets, as the paper prints them.
_SPELLED = {"cifar10": "CIFAR-10", "imagenet": "ImageNet", "wikitext103": "Wikitext-103"}
_PHASES = ("forward", "backward", "update")
_COLORS = tuple(color for color, _ in LINES[1:4])

Row = dict[str, Any]


def table(records: Sequence[StudyRecord]) -> str:
    """Return what a step costs, how rows compare, and the same in evaluations of f."""
    parts = []
    for record in records:
        rows = record.numbers["rows"]
        parts += [
            f"## On {page.name(record, place(record), records)}",
            f"Seconds: {record.numbers['clock']}, medians with quartiles.{_conditions(record)}",
            _cost(rows),
            _compared(rows),
            "In evaluations of f, one forward of it alone being 1; in parentheses what is expected "
            "(a product with the transposed Jacobian 1, a backward pass to the weights 2).",
            _in_f(rows),
        ]
    return page.page(
        TITLE,
        "Speed was measured on synthetic batches, images or words of noise, with random weights, "
        "at the equilibrium stage: nothing was trained. Rows took turns, step by step.",
        *parts,
        page.bullets(
            (
                "Batch: of one process, as measured; in parentheses that of the row, over all its "
                "processes.",
                "Faster: how many times less time a sample takes than in the row compared with, "
                "the median over the rounds. The paper prints 1.4× (CIFAR-10) and 1.7× (ImageNet) "  # noqa: RUF001
                "for whole steps, and says that the backward pass alone is 12× faster on "  # noqa: RUF001
                "ImageNet; evaluations of f account for 2 to 3.",
                "Memory: by how much a step raises the memory in use at its highest point.",
                _LOG,
            )
        ),
        page.provenance(records),
    )


def _conditions(record: StudyRecord) -> str:
    """Return what else a reader must know of a measurement, in sentences with a space before."""
    said = ""
    if record.setting.get("whole_budgets"):
        said += " Solves spend their whole budgets, whatever they find."
    if (precision := record.setting.get("precision", "32-true")) != "32-true":
        said += f" Precision: {precision}."
    return said + "".join(
        f" {row['per_second'] / _LOGGED:.3g} times the images/s of the release's log."
        for row in record.numbers["rows"]
        if row["row"] == "table3/cifar10_upg"
    )


def place(record: StudyRecord) -> str:
    """Return the hardware of a record, and whether it is reduced."""
    return page.hardware(record) + (", reduced" if record.protocol != "full" else "")


def figures(records: Sequence[StudyRecord]) -> dict[str, Figure]:
    """Return bars of the milliseconds that a sample takes, by phase."""
    heights = [0.42 * len(record.numbers["rows"]) + 0.7 for record in records]
    figure = Figure(figsize=(8.4, sum(heights) + 0.9), layout="constrained")
    grid = figure.subplots(len(records), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, record in zip(grid[:, 0], records, strict=True):
        _bars(axes, record.numbers["rows"])
        axes.set_title(place(record))
    titled(figure, TITLE)
    patches = [Patch(color=c, label=p) for c, p in zip(_COLORS, _PHASES, strict=True)]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return {"throughput": figure}


def _bars(axes: Axes, rows: Sequence[Row]) -> None:
    for position, row in enumerate(rows):
        left = 0.0
        for phase, color in zip(_PHASES, _COLORS, strict=True):
            width = row["seconds"][phase]["median"] / row["batch"] * 1e3
            axes.barh(position, width, left=left, height=0.62, color=color)
            left += width
        axes.text(left, position, f" {_faster(row, 'step')}", va="center", color=INK, fontsize=7.5)
    axes.set_yticks(range(len(rows)), [pretty(_name(row)) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(f"milliseconds per {rows[0]['unit'].removesuffix('s')}")
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    bare(axes, "x")


def _name(row: Row) -> str:
    label = row["label"]
    dataset = _SPELLED.get(label["dataset"], label["dataset"])
    return f"{dataset}, {label['model']}: {label['method']}"


def _cost(rows: Sequence[Row]) -> str:
    phases = ("step", "forward", "backward", "update", "f")
    headings = ("Row", "Batch", "Samples/s", *(f"{p} (ms)" for p in phases), "Memory (MiB)")
    return page.table(
        headings,
        [
            (
                _name(row),
                f"{row['batch']} ({row['effective_batch']})",
                f"{row['per_second']:.1f}",
                *(_milliseconds(row["seconds"][phase], phase) for phase in phases),
                f"{row['peak_bytes'] / 2**20:,.0f}",
            )
            for row in rows
        ],
    )


def _milliseconds(spread: dict[str, Any], phase: str) -> str:
    low, _, high = (1e3 * q for q in spread["quartiles"])
    middle = f"{1e3 * spread['median']:.1f}"
    return f"{middle} [{low:.1f}, {high:.1f}]" if phase == "step" else middle


def _compared(rows: Sequence[Row]) -> str:
    names = {row["row"]: _name(row) for row in rows}
    lines = [
        (_name(row), names[row["baseline"]], *(_faster(row, p) for p in ("step", *_PHASES[:2])))
        for row in rows
        if row["baseline"]
    ]
    headings = ("Row", "Compared with", "Step faster", "Forward faster", "Backward faster")
    return page.table(headings, lines, words=2) if lines else ""


def _faster(row: Row, phase: str) -> str:
    return f"{row['faster'][phase]:.2f}×" if row["faster"] else ""  # noqa: RUF001


def _in_f(rows: Sequence[Row]) -> str:
    headings = ("Row", "f / solve", "Adjoint / solve", "Step", "Forward", "Backward")
    return page.table(
        headings,
        [
            (
                _name(row),
                *(_spent(row["evaluations"].get(which)) for which in ("forward", "adjoint")),
                *(_units(row, phase) for phase in ("step", "forward", "backward")),
            )
            for row in rows
        ],
    )


def _spent(evaluations: dict[str, float] | None) -> str:
    if evaluations is None:
        return DASH
    return f"{evaluations['mean']:.4g} of {evaluations['budget']:.4g}"


def _units(row: Row, phase: str) -> str:
    measured, counted = row["in_f"][phase], row["counted"]
    return f"{measured:.1f} ({counted[phase]:.4g})" if counted else f"{measured:.1f}"
