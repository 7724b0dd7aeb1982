"""Throughput: the cost of a training step of the paper's rows, measured and expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.studies.parts import Records, name, place
from phantomgrad_suite.report.table import DASH, Section
from phantomgrad_suite.runs.records import StudyRecord

PHASES = ("forward", "backward", "update")
_LOGGED = 215.0  # images/s of the release's log, see the notes of the catalogue
# The paper's spelling of the data sets of our rows.
_SPELLED = {"cifar10": "CIFAR-10", "imagenet": "ImageNet", "wikitext103": "Wikitext-103"}
_COSTS = ("step", *PHASES, "f")

Measured = dict[str, Any]


def sections(entry: Entry, records: Records) -> list[Section]:
    """Return, for each record, times, comparisons, and the same in evaluations of f."""
    found = []
    for record in records:
        rows, where = record.numbers["rows"], f"On {name(record, place(record), records)}"
        found.append(_times(where, _conditions(entry, record), rows))
        if any(row["baseline"] for row in rows):
            found.append(_comparisons(f"{where}: comparison", rows))
        found.append(_in_f(f"{where}: in evaluations of f", entry.text["in_f"], rows))
    return found


def _conditions(entry: Entry, record: StudyRecord) -> str:
    """Return the conditions of a measurement."""
    setting, rows = record.setting, record.numbers["rows"]
    found = [entry.text["clock"].format(clock=record.numbers["clock"])]
    if setting.get("whole_budgets"):
        found.append(entry.text["whole_budgets"])
    if setting.get("precision", "32-true") != "32-true":
        found.append(f"Precision: {setting['precision']}.")
    return " ".join(
        found
        + [
            entry.text["log"].format(row["per_second"] / _LOGGED)
            for row in rows
            if row["row"] == "table3/cifar10_upg"
        ]
    )


def _times(title: str, text: str, rows: Sequence[Measured]) -> Section:
    headings = ("Row", "Batch", "Samples/s", *(f"{p} (ms)" for p in _COSTS), "Memory (MiB)")
    cells = [
        (
            label(row),
            f"{row['batch']} ({row['effective_batch']})",
            f"{row['per_second']:.1f}",
            *(_milliseconds(row["seconds"][phase], phase) for phase in _COSTS),
            f"{row['peak_bytes'] / 2**20:,.0f}",
        )
        for row in rows
    ]
    return Section.of_texts(title, headings, cells, text=text)


def _milliseconds(spread: dict[str, Any], phase: str) -> str:
    median = f"{1e3 * spread['median']:.1f}"
    low, _, high = (1e3 * quartile for quartile in spread["quartiles"])
    return f"{median} [{low:.1f}, {high:.1f}]" if phase == "step" else median


def _comparisons(title: str, rows: Sequence[Measured]) -> Section:
    labels = {row["row"]: label(row) for row in rows}
    phases = ("step", "forward", "backward")
    cells = [
        (label(row), labels[row["baseline"]], *(faster(row, phase) for phase in phases))
        for row in rows
        if row["baseline"]
    ]
    headings = ("Row", "Compared with", *(f"{phase.capitalize()} faster" for phase in phases))
    return Section.of_texts(title, headings, cells, words=2)


def _in_f(title: str, text: str, rows: Sequence[Measured]) -> Section:
    headings = ("Row", "f / solve", "Adjoint / solve", "Step", "Forward", "Backward")
    cells = [
        (
            label(row),
            *(_spent(row["evaluations"].get(which)) for which in ("forward", "adjoint")),
            *(_in_evaluations(row, phase) for phase in ("step", "forward", "backward")),
        )
        for row in rows
    ]
    return Section.of_texts(title, headings, cells, text=text)


def _spent(evaluations: dict[str, float] | None) -> str:
    if evaluations is None:
        return DASH
    return f"{evaluations['mean']:.4g} of {evaluations['budget']:.4g}"


def _in_evaluations(row: Measured, phase: str) -> str:
    measured, counted = row["in_f"][phase], row["counted"]
    return f"{measured:.1f} ({counted[phase]:.4g})" if counted else f"{measured:.1f}"


def label(row: Measured) -> str:
    """Return data set, model and method of a measured row."""
    label = row["label"]
    dataset = _SPELLED.get(label["dataset"], label["dataset"])
    return f"{dataset}, {label['model']}: {label['method']}"


def faster(row: Measured, phase: str) -> str:
    """Return how many times less time a phase takes than in the reference, if there is one."""
    return f"{row['faster'][phase]:.2f}×" if row["faster"] else ""  # noqa: RUF001
