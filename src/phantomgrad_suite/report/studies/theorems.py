"""The three theorems of the paper as measurements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, pstdev
from typing import Any

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.studies.parts import Records
from phantomgrad_suite.report.table import DASH, Section
from phantomgrad_suite.runs.records import StudyRecord

_PERCENT = 0.01  # the relative error of the column "k to 1 %"

Case = dict[str, Any]


def sections(entry: Entry, records: Records) -> list[Section]:
    """Return a section for each theorem with a record; full records go before reduced ones."""
    makers = {
        "theorems/descent": _descent,
        "theorems/series": _series,
        "theorems/sgd": _sgd,
    }
    return [
        make(entry, record) for row, make in makers.items() if (record := first_of(records, row))
    ]


def first_of(records: Records, row: str) -> StudyRecord | None:
    """Return the first record of a row, of the full protocol if there is one."""
    found = sorted((r for r in records if r.row == row), key=lambda r: r.protocol != "full")
    return found[0] if found else None


def _descent(entry: Entry, record: StudyRecord) -> Section:
    steps = list(dict.fromkeys(case["steps"] for case in record.numbers["cases"]))
    rows = []
    for group in _grouped(record.numbers["cases"]):
        share = {case["steps"]: f"{100 * case['holds']:.0f}" for case in group}
        rows.append(
            (
                f"{group[0]['lipschitz']:g}",
                {"weight": "W", "input": "u"}[group[0]["wanted"]],
                f"{group[0]['damping']:g}",
                _short(group[0]["reduced_right"]),
                *(share[k] for k in steps),
                f"{100 * min(case['every'] for case in group):.0f}",
                f"{min(case['cosine']['min'] for case in group):.3f}",
            )
        )
    headings = ("L_h", "θ", "λ", "1/κ²", *(f"k = {k}" for k in steps), "Ascent", "Least cosine")
    return _section(entry, "descent", headings, rows, 3, record)


def _grouped(cases: Sequence[Case]) -> list[list[Case]]:
    """Return the cases by Lipschitz constant, wanted tensor (W before u) and λ."""

    def key(case: Case) -> tuple[float, bool, float]:
        return case["lipschitz"], case["wanted"] == "input", case["damping"]

    return [list(group) for _, group in groupby(sorted(cases, key=key), key=key)]


def _series(entry: Entry, record: StudyRecord) -> Section:
    numbers = record.numbers
    rates = {(c["lipschitz"], c["damping"], c["start"]): c["rate"] for c in numbers["unrolled"]}
    rows = []
    for case in numbers["neumann"]:
        norm, damping = case["lipschitz"], case["damping"]
        factors = [case[name] for name in ("norm", "radius", "rate")]
        factors += [rates[norm, damping, start] for start in ("zero", "rough")]
        errors = zip(numbers["steps"], case["error"], strict=True)
        rows.append(
            (
                f"{norm:g}",
                f"{damping:g}",
                *(f"{factor:.4f}" for factor in factors),
                next((str(k) for k, error in errors if error < _PERCENT), DASH),
                f"{case['looseness']:.2f}",
            )
        )
    headings = (
        *("L_h", "λ", "‖B‖", "Radius of B", "(i)", "(ii), h₀ = 0", "(ii), h₀ rough"),
        *("k to 1 %", "Looseness"),
    )
    return _section(entry, "series", headings, rows, 2, record)


def _sgd(entry: Entry, record: StudyRecord) -> Section:
    rows = [
        (
            label(case),
            *(_short(fmean(case["epsilon"][name])) for name in ("max", "mean")),
            _short(fmean(case["bias"])),
            f"{_short(fmean(case['level']))} ± {_short(pstdev(case['level']))}",
            _short(fmean(case["late"])),
            f"{fmean(case['risk']):.4f}",
        )
        for case in record.numbers["gradients"]
    ]
    headings = ("Gradient", "ε", "Mean error", "Bias", "Left side", "Second half", "R at the end")
    return _section(entry, "sgd", headings, rows, 1, record)


def _section(
    entry: Entry,
    theorem: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: int,
    record: StudyRecord,
) -> Section:
    title, text, *notes = entry.text[theorem].strip().split("\n")
    text = text.format(**record.setting)
    return Section.of_texts(title, headings, rows, words=words, text=text, notes=notes)


def label(case: Case) -> str:
    """Return a gradient as the tables of the suite name it."""
    if case["kind"] == "exact":
        return "Exact"
    return f"{case['kind'].upper()} A({case['steps']}, {case['damping']})"


def _short(value: float) -> str:
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
