"""The three theorems of the paper, as measured: what holds, how fast, and how close."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, pstdev
from typing import Any

from matplotlib.figure import Figure

from phantomgrad_suite.report.studies import page
from phantomgrad_suite.report.studies.theorem_figures import (
    descent_figure,
    series_figure,
    sgd_figure,
)
from phantomgrad_suite.runs.records import StudyRecord

TITLE = "Theorems 1, 2 and 3 as measurements"
_DRAW = {
    "theorem1": ("theorems/descent", descent_figure),
    "theorem2": ("theorems/series", series_figure),
    "theorem3": ("theorems/sgd", sgd_figure),
}
_PERCENT = 0.01  # the relative error that table 2 waits for

Case = dict[str, Any]


def table(records: Sequence[StudyRecord]) -> str:
    """Return a section for each theorem that has a record, and the checks of all records.

    A section shows the first record of its study, those of the full protocol first.
    """
    sections = {
        "theorems/descent": _descent,
        "theorems/series": _series,
        "theorems/sgd": _sgd,
    }
    shown = [
        section(record) for row, section in sections.items() if (record := _first(records, row))
    ]
    return page.page(TITLE, *shown, page.checks(records), page.provenance(records))


def figures(records: Sequence[StudyRecord]) -> dict[str, Figure]:
    """Return the figure of each theorem that has a record, by the name of its file."""
    return {
        name: draw(record)
        for name, (row, draw) in _DRAW.items()
        if (record := _first(records, row)) is not None
    }


def _first(records: Sequence[StudyRecord], row: str) -> StudyRecord | None:
    found = sorted(
        (record for record in records if record.row == row), key=lambda r: r.protocol != "full"
    )
    return found[0] if found else None


def _descent(record: StudyRecord) -> str:
    steps = list(dict.fromkeys(case["steps"] for case in record.numbers["cases"]))
    rows = []
    for (norm, wanted, damping), group in _grouped(record.numbers["cases"]):
        share = {case["steps"]: f"{100 * case['holds']:.0f}" for case in group}
        rows.append(
            (
                f"{norm:g}",
                {"weight": "W", "input": "u"}[wanted],
                f"{damping:g}",
                _short(group[0]["reduced_right"]),
                *(share[k] for k in steps),
                f"{100 * min(case['every'] for case in group):.0f}",
                f"{min(case['cosine']['min'] for case in group):.3f}",
            )
        )
    headings = ("L_h", "θ", "λ", "1/κ²", *(f"k = {k}" for k in steps), "Ascent", "Least cosine")
    setting = record.setting
    return "\n\n".join(
        (
            "## Theorem 1: the condition for an ascent direction",
            f"The share (%) of {setting['samples']} samples (D = {setting['size']}, "
            f"{setting['nonlinearity']}) in which the sufficient condition holds, by k. Where it "
            "holds, the phantom gradient is an ascent direction for every loss; it mostly is long "
            "before: the condition is far from necessary where dF/dθ is ill-conditioned.",
            page.table(headings, rows, words=3),
            page.bullets(
                (
                    "1/κ²: the right side of Remark 1, median over the samples.",
                    "Ascent: the share of samples with an ascent direction for every loss at "
                    "once, at the k where it is least. Least cosine: to the exact gradient of one "
                    "loss, over samples and k.",
                    "Above L_h = 1 the map is no contraction: without damping the series "
                    "need not converge.",
                )
            ),
        )
    )


def _grouped(cases: Sequence[Case]) -> list[tuple[tuple[float, str, float], list[Case]]]:
    """Return the cases by Lipschitz constant, wanted tensor and lambda, W before u."""

    def key(case: Case) -> tuple[float, bool, float]:
        return case["lipschitz"], case["wanted"] == "input", case["damping"]

    groups = [list(group) for _, group in groupby(sorted(cases, key=key), key=key)]
    return [((g[0]["lipschitz"], g[0]["wanted"], g[0]["damping"]), g) for g in groups]


def _series(record: StudyRecord) -> str:
    numbers = record.numbers
    rates = {(c["lipschitz"], c["damping"], c["start"]): c["rate"] for c in numbers["unrolled"]}
    rows = [
        (
            f"{case['lipschitz']:g}",
            f"{case['damping']:g}",
            f"{case['norm']:.4f}",
            f"{case['radius']:.4f}",
            f"{case['rate']:.4f}",
            *(
                f"{rates[case['lipschitz'], case['damping'], start]:.4f}"
                for start in ("zero", "rough")
            ),
            _reached(numbers["steps"], case["error"]),
            f"{case['looseness']:.2f}",
        )
        for case in numbers["neumann"]
    ]
    starts = ("h₀ = 0", "h₀ rough")
    headings = (
        "L_h",
        "λ",
        "‖B‖",
        "Radius of B",
        "(i)",
        *(f"(ii), {s}" for s in starts),
        "k to 1 %",
    )
    return "\n\n".join(
        (
            "## Theorem 2: convergence to the exact Jacobian",
            "The factor by which a step shrinks the error in the end: of the Neumann series (i), "
            "and of the Jacobian of k unrolled steps (ii) from starts that are no equilibria. It "
            "is the spectral radius of B, at most its norm; a smaller λ mostly brings both nearer "
            "to 1.",
            page.table((*headings, "Looseness"), rows, words=2),
            page.bullets(
                (
                    "The bound that is tested: the error of (i) is at most ‖B‖^k times the norm "
                    "of the limit, as the rest of the series is B^k times the limit. Looseness: "
                    "by how much the paper's bound, λ‖B‖^k/(1 - ‖B‖), is larger.",
                    "k to 1 %: the first of the values of k measured with a relative error of (i) "
                    "below 1 %.",
                )
            ),
        )
    )


def _reached(steps: Sequence[int], errors: Sequence[float]) -> str:
    return next((str(k) for k, error in zip(steps, errors, strict=True) if error < _PERCENT), "—")


def _sgd(record: StudyRecord) -> str:
    rows = [
        (
            named(entry),
            *(_short(fmean(entry["epsilon"][name])) for name in ("max", "mean")),
            _short(fmean(entry["bias"])),
            f"{_short(fmean(entry['level']))} ± {_short(pstdev(entry['level']))}",
            _short(fmean(entry["late"])),
            f"{fmean(entry['risk']):.4f}",
        )
        for entry in record.numbers["gradients"]
    ]
    headings = ("Gradient", "ε", "Mean error", "Bias", "Left side", "Second half", "R at the end")
    setting = record.setting
    return "\n\n".join(
        (
            "## Theorem 3: SGD with a phantom gradient",
            f"After {setting['iterations']} steps of SGD on a small regression, the mean over "
            f"{setting['seeds']} seeds: the left side of the theorem (the average of ‖∇R‖², "
            "weighted by the step sizes) grows with the error ε of the gradient, far more slowly "
            "than the bound G ε: in the second half it is that of the exact gradient plus about "
            "the square of the bias.",
            page.table(headings, rows),
            page.bullets(
                (
                    "ε and mean error: the largest and the mean distance of the gradient used "
                    "from the exact one of the same minibatch. Bias: the mean distance on the "
                    "whole data set.",
                    "Left side: ± one population standard deviation over the seeds. Second half: "
                    "the same average over the second half of the steps, with less of the way "
                    "down in it.",
                )
            ),
        )
    )


def named(entry: Case) -> str:
    """Return a gradient as the tables of the suite name it."""
    if entry["kind"] == "exact":
        return "Exact"
    return f"{entry['kind'].upper()} A({entry['steps']}, {entry['damping']})"


def _short(value: float) -> str:
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
