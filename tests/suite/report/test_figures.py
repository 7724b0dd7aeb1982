"""Figures: the points of their curves, and that they are written in every format."""

import math
from dataclasses import replace

import numpy as np
import pytest
from report.conftest import plots, points, published, record, runs_table, study_table

from phantomgrad_suite.report.figures.plot import (
    FAMILIES,
    Curve,
    Plot,
    file_name,
    pretty,
    render,
    styled,
)
from phantomgrad_suite.runs.records import Result, read_study, write_record

STARTS = {"pdf": b"%PDF", "svg": b"<?xml"}


# All figures


def test_every_format_is_written_and_again_the_same(results):
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    results.add("table9/honest/toy_implicit", "seed0", [0.8, 0.7])
    assert results.report("table9") == 0
    files = {path.name: path.read_bytes() for path in (results.path / "figures").iterdir()}
    names = ("table9", "table9_curves", "table9_honest_curves")
    assert set(files) == {f"{name}.{kind}" for name in names for kind in STARTS}
    for kind, start in STARTS.items():
        assert all(files[f"{name}.{kind}"].startswith(start) for name in names)
    results.report("table9")
    assert all((results.path / "figures" / name).read_bytes() == files[name] for name in files)


def test_panels_follow_rows_and_columns():
    """Curves with one label look the same; a panel without curves is empty."""
    curves = [
        Curve("a", [1, 2], [3.0, 4.0], "upper", "left"),
        Curve("b", [1, 2], [1.0, 2.0], "upper", "right"),
        Curve("a", range(30), np.arange(30.0), "lower A(5, 0.5)", "left", ([0.0] * 30, [1.0] * 30)),
    ]
    with styled():
        figure = Plot("n", "c", "t", curves, "k", "a note").draw()
    axes = figure.axes
    assert [panel.get_visible() for panel in axes] == [True, True, True, False]
    assert [axes[i].get_title(loc="left") for i in (0, 1)] == ["left", "right"]
    assert [axes[i].get_ylabel() for i in (0, 2)] == ["upper", r"lower $A_{5,\,0.5}$"]
    assert [axes[i].get_xlabel() for i in (0, 1, 2)] == ["", "k", "k"]
    first, other, long = (axes[i].lines[0] for i in (0, 1, 2))
    assert first.get_color() == long.get_color() != other.get_color()
    assert first.get_linestyle() != other.get_linestyle()
    assert (first.get_marker(), long.get_marker()) == ("o", "None")  # many points have none
    assert len(axes[2].collections) == 1  # the band
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert legend.get_title().get_text() == "a note"
    assert pretty("UPG A(9, 0.5)") == pretty("UPG A(9,\n0.5)") == r"UPG $A_{9,\,0.5}$"


def test_dots_have_names_and_whiskers():
    panel = ("accuracy", "")
    curve = Curve("best", [2.0], [1], *panel, ([1.5], [3.0]))
    with styled():
        figure = Plot("n", "c", "t", [curve], places={panel: ["one", "two"]}).draw()
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert axes.get_xlabel() == "accuracy"
    (bars,) = axes.containers[0].lines[2]
    assert bars.get_segments()[0][:, 0].tolist() == [1.5, 3.0]


def test_more_rows_than_colours_with_long_names_can_be_drawn():
    long = [
        {"dataset": f"data {i % 2}", "model": f"m{i}", "method": "long " * 19} for i in range(11)
    ]
    found = [record(f"t/{i}", "seed0", [0.5], label=label) for i, label in enumerate(long)]
    assert [*map(len, map(render, plots(runs_table("t", found)).values()))] == [2, 2]


# Runs


def test_dots_stand_at_the_printed_values(results):
    for seed, value in enumerate((0.8, 0.9)):
        results.add("table9/toy_implicit", f"seed{seed}", [value, value - 0.1])
    plot = plots(results.table("table9"))["table9"]
    assert plot.places == {("Toy: accuracy (%) ↑", ""): ["Implicit", "UPG A(5, 0.5)"]}
    found = [(curve.label, curve.x[0], round(curve.y[0])) for curve in plot.curves]
    best, last = "best epoch of each run", "last epoch"
    values = [("paper", 84.1, 0), ("paper", 83.9, 1), (best, 85.0, 0), (last, 75.0, 0)]
    assert [(label, pytest.approx(x), y) for label, x, y in found] == values
    assert np.ravel(plot.curves[2].band) == pytest.approx([85 - 50**0.5, 85 + 50**0.5])


def test_best_epochs_that_are_the_last_ones_are_not_drawn(results):
    results.add("table9/toy_implicit", "seed0", [0.8, 0.9])
    plot = plots(results.table("table9"))["table9"]
    assert [curve.label for curve in plot.curves] == ["paper", "paper", "last epoch"]
    assert plot.note.endswith("; best epochs are not drawn where they are the last ones")


def test_of_many_rows_the_main_ones_have_curves():
    names = [
        "implicit",
        "upg_k5_d0.5_no_dropout",
        *"abcde",
    ]  # the first two are named for the costs
    found = [record(f"table1/{n}", "seed0", [0.5], label={"method": n}) for n in names]
    curves = plots(runs_table("table1", found))["table1_curves"].curves
    assert {curve.label for curve in curves} == {*names[:2]}
    few = plots(runs_table("table1", found[1:]))["table1_curves"].curves
    assert {curve.label for curve in few} == {*names[1:]}
    label = {"method": "f", "dataset": "Small"}  # another data set keeps its rows
    both = plots(runs_table("table1", [*found, record("table1/f", "seed0", [0.5], label=label)]))
    assert {curve.label for curve in both["table1_curves"].curves} == {*names[:2], "f"}
    assert both["table1_curves"].note == "only the main rows are drawn"


def test_curves_hold_means_and_leave_out_missing_epochs():
    values = [[0.5, None, 0.7], [0.7, 0.6, 0.9]]
    table = runs_table("t", [record("t/a", f"seed{i}", v) for i, v in enumerate(values)])
    test, loss = plots(table)["t_curves"].curves
    assert (test.row, test.column) == ("Toy\naccuracy (%) ↑", "Test")
    assert list(test.y) == pytest.approx([60.0, 60.0, 80.0])
    assert test.band[0][2] == pytest.approx(70)  # a standard error, with ddof 1
    assert (loss.column, list(loss.y)) == ("Training loss", pytest.approx([1, 1 / 2, 1 / 3]))


def test_reduced_runs_are_not_among_the_curves_of_full_ones():
    short = record("t/a", "seed1", [0.1], protocol="reduced", changes=["x=1"])
    both = runs_table("t", [record("t/a", "seed0", [0.5, 0.6]), short])
    assert {c.label for c in plots(both)["t_curves"].curves} == {"Implicit"}
    alone = plots(runs_table("t", [short]))["t_curves"].curves
    assert {c.label for c in alone} == {"Implicit [reduced: x=1]"}


# Figure 2


PRECISION = {
    "test/accuracy": [0.5],
    "precision/step": [0, 100, 200],
    "precision/npg_k5_d0.5/cosine": [0.9, 0.91, None],
    "precision/upg_k1_d1.0/cosine": [0.7, 0.71, 0.72],
    "precision/upg_k5_d0.5/norm_ratio": [0.1, 0.1, 0.1],
    "precision/spectral_radius/F": [0.5, 0.6, 1.2],
    "precision/spectral_radius/F_damped": [0.4, 0.5, 0.9],
}


def test_precision_along_training():
    """There is a figure of cosines along exact training, and one of the radii of all rows."""
    runs = [
        record(
            f"figure2/cox2_{row}",
            f"seed{seed}",
            [0.5],
            label={"dataset": "COX2", "model": "IGNN", "method": method},
            curves=PRECISION | ({"precision/upg_k1_d1.0/cosine": [0.5, 0.69, 0.7]} if seed else {}),
            config_hash=method,
        )
        for row, method in (("implicit", "Implicit"), ("npg_k5_d0.5", "NPG"))
        for seed in range(2)
    ]
    runs.append(record("figure2/other", "seed0", [0.5]))  # measured nothing
    found = plots(runs_table("figure2", runs))
    assert list(found) == ["figure2_cox2_cosines", "figure2_cox2_radius"]
    cosines = points(found["figure2_cox2_cosines"])
    row = "cosine along training\nImplicit"
    assert cosines[row, "UPG", "A(1, 1.0)"] == ([0, 100, 200], pytest.approx([0.6, 0.7, 0.71]))
    assert cosines[row, "NPG", "A(5, 0.5)"][1][:2] == [0.9, 0.91]
    assert len(cosines) == 2
    radii = [curve for curve in found["figure2_cox2_radius"].curves if curve.label == "NPG"]
    assert [list(curve.y) for curve in radii] == [[0.5, 0.6, 1.2], [0.4, 0.5, 0.9]]


def test_precision_of_estimators_with_names_of_your_own():
    """Their cosines have no place in the figure of the others; the radii have."""
    curves = {name: c for name, c in PRECISION.items() if not name.endswith("/cosine")}
    run = record("figure2/a", "seed0", [0.5], curves=curves | {"precision/mine/cosine": [0.5] * 3})
    assert list(plots(runs_table("figure2", [run]))) == ["figure2_toy_radius"]


# Figure 3


def point(form, k, d, seed):
    """A run whose best is 0.5 + k/100 + d/10 for UPG, a tenth less for NPG; the last is less.

    The seeds differ by 0.02 at all points, and at UPG A(9, 1) by 0.06.
    """
    best = 0.5 + k / 100 + d / 10 - (0.1 if form == "npg" else 0) + (0.01 if seed else -0.01)
    best += (0.02 if seed else -0.02) if (form, k, d) == ("upg", 9, 1) else 0
    return record(
        f"figure3/digits/{form}_k{k}_d{d}",
        f"seed{seed}",
        [best],
        label={"dataset": "Digits", "model": "DEQ", "method": f"{form.upper()} A({k}, {d})"},
        result=Result("accuracy", best, 1, best - 0.05),
        config_hash=f"{form}{k}{d}",
    )


def test_sweeps_run_through_the_means_over_k():
    """There is a column for each form; missing points and rows of other gradients are left out."""
    grid = [
        (f, k, d, s) for f in ("upg", "npg") for k in (1, 3, 9) for d in (0.5, 1) for s in (0, 1)
    ]
    runs = [point(*one) for one in grid if one[:3] != ("npg", 3, 0.5)]
    found = plots(runs_table("figure3", [*runs, record("figure3/other/implicit", "s0", [0.8])]))
    assert list(found) == ["figure3_digits"]
    plot = found["figure3_digits"]
    assert (plot.log, list(plot.ticks)) == ("x", [1, 3, 9])
    curves = points(plot)
    best = "accuracy (%) ↑\nbest epoch"
    assert curves[best, "UPG", r"$\lambda = 0.5$"] == ([1, 3, 9], pytest.approx([56, 58, 64]))
    assert curves[best, "NPG", r"$\lambda = 0.5$"] == ([1, 9], pytest.approx([46, 54]))
    last = curves["accuracy (%) ↑\nlast epoch", "UPG", r"$\lambda = 1.0$"][1]
    assert last == pytest.approx([56, 58, 64])
    whiskers = {(c.column, c.label): c.band[1] - c.y for c in plot.curves if best == c.row}
    points_, other = 11, 2 - 2 / 11  # the seeds differ by 4 points more at one of the points
    error = math.sqrt(points_ / (points_ - 1))
    assert whiskers["UPG", r"$\lambda = 1.0$"][-1] == pytest.approx(error * other)
    assert whiskers["NPG", r"$\lambda = 0.5$"] == pytest.approx(error * 2 / 11)
    assert "standard error" in plot.note


# Studies (test_tables.py compares those that are published with their files)


def test_figure4_has_medians_by_iteration(tmp_path):
    """There is a figure for each map; a method that diverged leaves a gap."""
    record = published("figure4/tanh")
    level = record.numbers["levels"][0]
    level["methods"][0]["l1_norm"][-1] = [float("inf")] * 5
    write_record(record, tmp_path / "r.json")
    table = study_table("figure4", read_study(tmp_path / "r.json"), published("figure4/linear"))
    found = plots(table)
    assert list(found) == ["figure4_tanh", "figure4_linear"]
    columns = {curve.column.split(",")[0] for curve in found["figure4_tanh"].curves}
    assert columns == {"$L_h = 0.9$", "$L_h = 0.99$"}  # more do not change the condition number
    assert len({curve.column for curve in found["figure4_linear"].curves}) == 3
    angle, norm, *others, exact = (
        curve for curve in found["figure4_tanh"].curves if "= 0.9$" in curve.column
    )
    assert {curve.label for curve in others} == {f"NPG and UPG, λ = {d}" for d in (0.5, 1.0)}
    assert angle.y[:3] == pytest.approx(1 - np.array(level["methods"][0]["cosine"])[:3, 2])
    assert (norm.label, norm.x[0], len(norm.x)) == ("Broyden", 0, 31)
    assert norm.y[0] == level["methods"][0]["l1_norm"][0][2]
    assert np.isnan(norm.y[-1])
    assert exact.y == [level["l1_norm"][2]] * len(exact.x)


def test_figure1_draws_forms_that_agree_once():
    plot = plots(study_table("figure1", published("figure1/tanh")))["figure1"]
    rows = {curve.row.split("\n")[0] for curve in plot.curves}
    assert rows == {rf"NPG and UPG, $\lambda = {d}$" for d in (0.5, 1.0)}


def test_colours_are_those_of_the_family():
    runs = [record(f"t/{row}", "s0", [0.5, 0.6]) for row in ("implicit", "upg_k5_d0.5")]
    labels = {"dataset": "Toy", "model": "IGNN", "method": "UPG"}
    runs[1] = replace(runs[1], label=labels)
    looks = plots(runs_table("t", runs))["t_curves"]._looks()
    assert [look["color"] for look in looks.values()] == [FAMILIES["implicit"], FAMILIES["UPG"]]


def test_names_of_files_have_no_spaces_or_commas():
    assert file_name("reasoning", "", "6 x 6 sudoku, 100 puzzles", "k1_d0.5/cost") == (
        "reasoning_6_x_6_sudoku_100_puzzles_k1_d05_cost"
    )
