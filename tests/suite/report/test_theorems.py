"""The tables and figures of the theorems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report.conftest import figures, rows, study_table, texts
from report.study_records import study

from phantomgrad_suite.report.table import State
from phantomgrad_suite.runs.records import StudyRecord

STEPS = [1, 4, 16, 64]


SETTING = {"samples": 8, "size": 6, "nonlinearity": "tanh", "iterations": 64, "seeds": 2}


def record(name: str, numbers: dict[str, Any], **changes: Any) -> StudyRecord:
    return study(f"theorems/{name}", SETTING, numbers, **changes)


def descent(**changes: Any) -> StudyRecord:
    """Two constants; the right side of the last case is zero."""
    cases = [
        {
            "lipschitz": norm,
            "wanted": wanted,
            "steps": k,
            "damping": damping,
            "holds": 0.25 if k == 64 else 0.0,
            "reduced": 0.0,
            "every": 0.75 if norm > 1 else 1.0,
            "ascends": 1.0,
            "left": 2.0 / k,
            "right": 0.0 if norm > 1 else 0.25,
            "reduced_right": 0.0 if norm > 1 else 0.125,
            "cosine": {"mean": 0.9, "min": 0.5},
        }
        for norm in (0.5, 2.0)
        for wanted in ("input", "weight")
        for k in STEPS
        for damping in (0.5, 1.0)
    ]
    return record("descent", {"cases": cases}, **changes)


def series() -> StudyRecord:
    base = {"lipschitz": 0.9, "damping": 0.5, "norm": 0.8, "radius": 0.75, "looseness": 1.5}
    curve = {"error": [0.7**k for k in STEPS], "rate": 0.7}
    neumann = [{**base, **curve}, {**base, "damping": 1.0, "error": [0.5] * 4, "rate": 1.0}]
    unrolled = [
        {**base, "damping": damping, "start": start, **curve, "rate": rate}
        for damping in (0.5, 1.0)
        for start, rate in (("zero", 0.71), ("rough", 0.72))
    ]
    return record("series", {"steps": STEPS, "neumann": neumann, "unrolled": unrolled})


def sgd() -> StudyRecord:
    def entry(kind: str, k: int | None, damping: float | None, error: float) -> dict[str, Any]:
        return {
            "kind": kind,
            "steps": k,
            "damping": damping,
            "epsilon": {"max": [error, error], "mean": [error / 2, error / 2]},
            "bias": [error / 4, error / 4],
            "bound": [3.0, 3.0],
            "level": [0.1 + error, 0.3 + error],
            "late": [0.01 + error**2] * 2,
            "risk": [0.5, 0.7],
            "curve": [1.0, 0.8, 0.4, 0.2 + error],
            "square": [1.0, 0.5, 0.1, 0.05 + error],
        }

    gradients = [
        entry("exact", None, None, 0.0),
        entry("npg", 1, 1.0, 0.5),
        entry("upg", 5, 0.5, 0.1),
    ]
    return record("sgd", {"steps": STEPS, "gradients": gradients, "norm": 0.8})


def test_the_first_theorem_has_shares_by_k() -> None:
    section = study_table("theorems", descent()).sections[0]
    shares = [f"k = {k}" for k in STEPS]
    found = rows(section)
    assert list(found[0]) == ["L_h", "θ", "λ", "1/κ²", *shares, "Ascent", "Least cosine"]
    lines = [list(row.values()) for row in found]
    assert lines[0] == ["0.5", "W", "0.5", "0.125", "0", "0", "0", "25", "100", "0.500"]
    assert lines[4] == ["2", "W", "0.5", "0", "0", "0", "0", "25", "75", "0.500"]
    assert "of 8 samples (D = 6, tanh)" in section.text


def test_the_second_theorem_has_rates() -> None:
    first, second = texts(study_table("theorems", series()).sections[0])
    rates = ["0.8000", "0.7500", "0.7000", "0.7100", "0.7200"]
    assert first == ["0.9", "0.5", *rates, "16", "1.50"]
    assert second[7] == "—"  # never below one percent


def test_the_third_theorem_has_means_over_the_seeds() -> None:
    exact, npg, _ = texts(study_table("theorems", sgd()).sections[0])
    assert exact[:4] == ["Exact", "0", "0", "0"]
    assert npg == ["NPG A(1, 1.0)", "0.5", "0.25", "0.125", "0.7 ± 0.1", "0.26", "0.6000"]


def test_the_full_record_of_a_theorem_is_shown_and_all_are_checked() -> None:
    other = descent(instance="seed1-abc", protocol="reduced", changes=["setting.samples=3"])
    other = replace(other, setting={**other.setting, "samples": 3})
    table = study_table("theorems", other, descent(), series(), sgd())
    assert "of 8 samples" in table.sections[0].text
    claims = [row["Claim"] for row in rows(table.sections[-1])]
    assert claims == [
        f"a claim of theorems/{name}" for name in ("descent", "descent", "series", "sgd")
    ]
    assert (table.state, table.missing) == (State.PARTLY, "3 of 4 studies in full")


def test_a_missing_theorem_is_named() -> None:
    table = study_table("theorems", descent(), series())
    assert (table.state, table.missing) == (State.PARTLY, "not Theorem 3")


def test_figures_show_the_numbers_of_the_records() -> None:
    drawn = figures(study_table("theorems", descent(), series(), sgd()))
    assert list(drawn) == ["theorem1", "theorem2", "theorem3"]
    for figure in drawn.values():
        figure.draw_without_rendering()
    weight, ill = drawn["theorem1"].axes[:2]
    assert list(weight.lines[1].get_ydata()) == pytest.approx([8.0 / k for k in STEPS])
    assert {line.get_marker() for line in ill.lines} >= {"x"}  # ascent fails there
    upper = drawn["theorem2"].axes[0]
    assert list(upper.lines[0].get_ydata()) == pytest.approx([0.8**k for k in STEPS])
    assert list(upper.lines[1].get_ydata()) == pytest.approx([0.7**k for k in STEPS])
    curves = drawn["theorem3"].axes[0]
    assert list(curves.lines[-1].get_ydata()) == [1.0, 0.8, 0.4, 0.2]  # the exact one, on top
