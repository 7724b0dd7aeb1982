"""Figure 2: cosines along a run, and the spectral radii of all runs of a data set."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from report.conftest import record

from phantomgrad_suite.report.figures.style import LINES
from phantomgrad_suite.runs.records import Record
from report import conftest

CURVES = {
    "test/accuracy": [0.5],
    "precision/step": [0, 100, 200],
    "precision/upg_k1_d1.0/cosine": [0.7, 0.71, 0.72],
    "precision/upg_k5_d0.5/cosine": [0.8, 0.81, 0.82],
    "precision/upg_k5_d0.5/norm_ratio": [0.1, 0.1, 0.1],
    "precision/npg_k5_d0.5/cosine": [0.9, 0.91, None],
    "precision/spectral_radius/F": [0.5, 0.6, 1.2],
    "precision/spectral_radius/F_damped": [0.4, 0.5, 0.9],
}


def run(method: str = "Implicit", **changes: Any) -> Record:
    row = f"figure2/cox2_{'upg_k5_d0.5' if 'UPG' in method else method.lower()}"
    label = {"dataset": "COX2", "model": "IGNN", "method": method}
    return record(row, "seed0", [0.5], **{"label": label, "curves": CURVES, **changes})


def figures(*records: Record) -> dict[str, Figure]:
    return conftest.figures(conftest.runs_table("figure2", records))


def test_cosines_stand_under_their_steps() -> None:
    """As in the paper: the step upwards, a panel for each form; norm ratios are not drawn."""
    npg, upg = figures(run())["figure2_cox2_implicit"].axes
    assert [axes.get_title(loc="left") for axes in (npg, upg)] == ["(a) NPG", "(b) UPG"]
    assert npg.get_ylabel() == "training step"
    assert [list(line.get_xdata()) for line in upg.lines] == [[0.7, 0.71, 0.72], [0.8, 0.81, 0.82]]
    assert all(list(line.get_ydata()) == [0, 100, 200] for line in upg.lines)
    (line,) = npg.lines
    assert list(line.get_xdata())[:2] == [0.9, 0.91]
    assert line.get_color() == upg.lines[1].get_color()  # k = 5, λ = 0.5 in both
    assert line.get_color() != upg.lines[0].get_color()


def test_cosines_name_their_settings_and_the_run() -> None:
    figure = figures(run("UPG A(5, 0.5)"))["figure2_cox2_upg_k5_d05"]
    (legend,) = figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == [
        r"$k = 1, \lambda = 1.0$",
        r"$k = 5, \lambda = 0.5$",
    ]
    text = " ".join(text.get_text() for text in figure.texts) + figure.get_suptitle()
    assert "COX2, trained by UPG" in text


def test_radii_of_all_runs_share_a_panel() -> None:
    """One for F, one for the damped map; a colour and a dash for each gradient; the bound, 1."""
    found = figures(run(), run("NPG", config_hash="other"))
    assert list(found) == ["figure2_cox2_implicit", "figure2_cox2_npg", "figure2_cox2_radius"]
    left, right = found["figure2_cox2_radius"].axes
    plain, other, bound = left.lines
    assert list(plain.get_xdata()) == [0, 100, 200]
    assert list(plain.get_ydata()) == [0.5, 0.6, 1.2]
    assert list(right.lines[0].get_ydata()) == [0.4, 0.5, 0.9]
    assert [plain.get_color(), other.get_color()] == [LINES[0][0], LINES[1][0]]
    assert plain.get_linestyle() != other.get_linestyle()
    assert plain.get_marker() != other.get_marker()
    assert list(bound.get_ydata()) == [1, 1]


def test_runs_that_were_not_looked_at_are_not_drawn() -> None:
    assert figures(run(curves={"test/accuracy": [0.5]})) == {}
