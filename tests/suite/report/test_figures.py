"""Figures: the points that they draw, the look of a line, and the files."""

import math

import numpy as np
import pandas as pd
import pytest
from graph_data import REPOSITORY
from report.conftest import (
    PUBLISHED,
    gradient_of,
    plots,
    points,
    published,
    record,
    runs_table,
    study_table,
)

from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.style import (
    FAMILIES,
    Lines,
    curve,
    file_name,
    looks_of,
    once,
    pretty,
    render,
    spread,
    styled,
)
from phantomgrad_suite.report.tables import known_tables, load
from phantomgrad_suite.runs.records import Result

ROW = "Toy\naccuracy (%) ↑"


# The look


def test_panels_follow_rows_and_columns_and_name_curves_once():
    """A panel without curves is empty; names stand at the right of panels with the same curves."""
    parts = [
        curve("a A(5, 0.5)", [1, 2], [3.0, 4.0], "upper", "left", family="UPG"),
        curve("a A(5, 0.5)", [1, 2], [1.0, 2.0], "upper", "right", family="UPG"),
        curve("b", range(30), np.arange(30.0), "lower", "left", low=0.0, high=1.0),
    ]
    with styled():
        plot = Lines("n", "c", "t", pd.concat(parts, ignore_index=True), "k", "a note")
        axes = plot.draw().axes
    assert [panel.get_visible() for panel in axes] == [True, True, True, False]
    assert [axes[i].get_title(loc="left") for i in (0, 1)] == ["left", "right"]
    assert [axes[i].get_ylabel() for i in (0, 2)] == ["upper", "lower"]
    assert [axes[i].get_xlabel() for i in (0, 1, 2)] == ["", "k", "k"]
    names = [[text.get_text() for text in panel.texts] for panel in axes]
    assert names == [[], [r"a $A_{5,\,0.5}$"], ["b"], []]
    assert [axes[i].lines[0].get_color() for i in (0, 1)] == [FAMILIES["UPG"]] * 2
    assert [axes[i].lines[0].get_marker() for i in (0, 2)] == ["o", "None"]  # many have none
    assert len(axes[2].collections) == 1  # the band


def test_members_of_a_family_share_a_colour_and_differ_in_dash_and_marker():
    families = {"implicit": "implicit", "UPG 1": "UPG", "UPG 2": "UPG", "other": ""}
    parts = [curve(label, [1], [1], family=family) for label, family in families.items()]
    looks = [*looks_of(pd.concat(parts)).values()]
    assert [look["color"] for look in looks[:3]] == [
        FAMILIES[f] for f in ("implicit", "UPG", "UPG")
    ]
    assert looks[3]["color"] not in FAMILIES.values()
    assert looks[1]["linestyle"] != looks[2]["linestyle"]
    assert looks[1]["marker"] != looks[2]["marker"]


def test_names_at_ends_keep_their_order_and_a_distance():
    assert spread([0.1, 0.9, 0.5], 0.1) == pytest.approx([0.1, 0.9, 0.5])
    assert spread([0.5, 0.52, 0.51], 0.1) == pytest.approx([0.5, 0.7, 0.6])
    crowded = spread([1.0] * 4, 0.1)
    assert np.diff(crowded) == pytest.approx([0.1] * 3)
    assert max(crowded) == pytest.approx(1.05)
    assert pretty("UPG A(9, 0.5)") == pretty("UPG A(9,\n0.5)") == r"UPG $A_{9,\,0.5}$"
    assert (
        file_name("r", "", "6 x 6 sudoku, 100", "k1_d0.5/cost") == "r_6_x_6_sudoku_100_k1_d05_cost"
    )


def test_curves_that_no_picture_tells_apart_are_drawn_once():
    values = {"NPG, k": [1.0, 2.0], "UPG, k": [1.0005, 2.0], "UPG": [1.0, 2.1]}
    points = once(pd.concat([curve(label, [1, 2], y) for label, y in values.items()]))
    assert [*points["label"].unique()] == ["NPG and UPG, k", "UPG"]
    apart = once(pd.concat([curve("NPG", [1], [1]), curve("UPG", [1], [1], "elsewhere")]))
    assert [*apart["label"].unique()] == ["NPG", "UPG"]


def test_the_same_figure_gives_the_same_bytes_in_every_format(results):
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    assert results.report("table9") == 0
    files = {path.name: path.read_bytes() for path in (results.path / "figures").iterdir()}
    assert {*files} == {
        f"table9{part}.{kind}" for part in ("", "_curves") for kind in ("svg", "pdf")
    }
    found = plots(results.table("table9"))["table9_curves"]
    assert {f"table9_curves.{kind}": data for kind, data in render(found.draw).items()} == {
        name: data for name, data in files.items() if "curves" in name
    }


def test_figures_of_this_repository_are_those_of_its_records():
    """All are there and none is left over; those of one table are drawn again."""
    results = REPOSITORY / "results"
    keys = known_tables(results, PUBLISHED)
    found = [plot for key in keys for plot in plots_of(load(results, key, PUBLISHED))]
    names = sorted([*(f"{plot.name}.svg" for plot in found), "claims.svg"])
    assert names == sorted(path.name for path in (results / "figures").glob("*.svg"))
    assert all(plot.title and plot.caption for plot in found)


# Runs


def test_dots_stand_at_the_printed_values(results):
    for seed, value in enumerate((0.8, 0.99)):
        results.add("table9/toy_implicit", f"seed{seed}", [value, value - 0.1])
    found = plots(results.table("table9"))["table9"].points
    best, last = "best epoch of each run", "last epoch"
    values = found[["label", "name", "x"]].to_numpy().tolist()
    assert [(label, name, pytest.approx(x)) for label, name, x in values] == [
        ("paper", "Implicit", 84.1),
        ("paper", "UPG A(5, 0.5)", 83.9),
        (best, "Implicit", 89.5),
        (last, "Implicit", 79.5),
    ]
    assert found.set_index("label").loc[best, "high"] == 100  # no accuracy is above 100 %
    with styled():
        (axes,) = plots(results.table("table9"))["table9"].draw().axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["Implicit", r"UPG $A_{5,\,0.5}$"]


def test_curves_hold_means_and_differences_to_implicit_runs_of_the_same_seed():
    values = {"a_implicit": [[0.5, None, 0.7], [0.7, 0.6, 0.9]], "b_upg_k5_d0.5": [[0.6, 0.5, 0.8]]}
    runs = [
        record(f"t/{row}", f"seed{i}", v, label={"dataset": "Toy", "method": row}, config_hash=row)
        for row, each in values.items()
        for i, v in enumerate(each)
    ]
    plot = plots(runs_table("t", runs))["t_curves"]
    found = points(plot)
    assert found[ROW, "test", "a_implicit"][1] == pytest.approx([60, 60, 80])
    assert found[ROW, "training loss", "a_implicit"][1] == pytest.approx([1, 1 / 2, 1 / 3])
    difference = found[ROW, "test, minus implicit", "b_upg_k5_d0.5"]
    assert difference == ([1, 3], pytest.approx([10, 10]))
    assert plot.points["low"].max() == pytest.approx(70)  # 80 less a standard error, with ddof 1
    assert plot.title == "T: Toy, implicit 80.0, phantom gradients 80.0 at the last epoch"


def test_of_many_rows_the_main_ones_have_curves_and_reduced_runs_only_alone():
    names = ["implicit", "upg_k5_d0.5_no_dropout", *"abcde"]  # two are named for the costs
    found = [record(f"table1/{n}", "seed0", [0.5], label={"method": n}) for n in names]
    curves = plots(runs_table("table1", found))["table1_curves"]
    assert {*curves.points["label"]} == {*names[:2]}
    assert curves.note == "only the main rows are drawn"
    short = record("t/a", "seed1", [0.1], protocol="reduced", changes=["x=1"])
    both = plots(runs_table("t", [record("t/a", "seed0", [0.5, 0.6]), short]))["t_curves"]
    assert {*both.points["label"]} == {"Implicit"}
    alone = plots(runs_table("t", [short]))["t_curves"]
    assert {*alone.points["label"]} == {"Implicit [reduced: x=1]"}


def test_more_rows_than_colours_with_long_names_can_be_drawn():
    long = [
        {"dataset": f"data {i % 2}", "model": f"m{i}", "method": "long " * 19} for i in range(11)
    ]
    found = [record(f"t/{i}", "seed0", [0.5], label=label) for i, label in enumerate(long)]
    drawn = plots(runs_table("t", found)).values()
    assert [len(render(plot.draw)) for plot in drawn] == [2, 2]


def test_the_metric_is_drawn_by_time_and_by_evaluations():
    """The unit of time is an evaluation of f of the same run; runs of unknown cost are left out."""

    def trained(row, seed, steps, **changes):
        gradient = {"_target_": "phantomgrad.UnrolledPhantomGradient", "steps": steps, "damping": 1}
        parts = {"task": {}, "model": {}, "solver": {"_target_": "x"}, "gradient": gradient}
        curves = {
            **{"test/accuracy": [0.5, 0.7], "solver/evaluations": [8, 6]},
            **{"seconds/step_cpu": [3.0, 5.0], "seconds/f_cpu": [0.1, 0.3]},
        }
        content = {"weights": {"last": {"epoch": 2, "step": 20}}, "config_hash": row, **changes}
        config = {"label": {"reduced": []}, **parts}
        return record(f"table4/{row}", seed, [0.7], config=config, curves=curves, **content)

    runs = [trained("cox2_upg_k5_d0.5", f"seed{i}", 5) for i in range(2)]
    runs[1].curves["seconds/step_cpu"] = [5.0, 5.0]
    runs += [trained("cox2_implicit", "seed0", 1, weights={}), trained("other", "seed0", 1)]
    found = points(plots(runs_table("table4", runs))["table4_toy_cost"])
    time, work = "processor time in thousand evaluations of f", "thousand evaluations of f"
    assert found == {
        (ROW, time, "Implicit"): (pytest.approx([4 / 200, 9 / 200]), pytest.approx([50, 70])),
        (ROW, work, "Implicit"): (pytest.approx([0.18, 0.34]), pytest.approx([50, 70])),
    }


# Figures 2 and 3, and searches


def test_precision_along_training():
    """There are cosines along exact training, of estimators as they are configured, and radii."""
    estimators = {"mine": gradient_of("upg_k1_d1.0"), "npg": gradient_of("npg_k5_d0.5")}
    curves = {
        "precision/step": [0, 100, 200],
        "precision/npg/cosine": [0.9, 0.91, None],
        "precision/mine/cosine": [0.7, 0.71, 0.72],
        "precision/spectral_radius/F": [0.5, 0.6, 1.2],
        "precision/exact/adjoint_residual": [0.1, 0.001, 0.001],
    }
    runs = [
        record(
            f"figure2/cox2_{row}",
            "seed0",
            [0.5],
            label={"dataset": "COX2", "model": "IGNN", "method": row},
            curves=curves,
            config={
                **{"label": {"reduced": []}, "gradient": gradient_of(row)},
                "measure": {"precision": {"estimators": estimators}, "example": None},
            },
        )
        for row in ("implicit", "npg_k5_d0.5")
    ]
    table = runs_table("figure2", [*runs, record("figure2/other", "seed0", [0.5])])
    found = plots(table)
    assert list(found) == ["figure2_cox2_cosines", "figure2_cox2_radius"]
    row = "cosine along training\nimplicit"
    assert points(found["figure2_cox2_cosines"]) == {
        (row, "phantom gradients", "UPG A(1, 1.0)"): ([0, 100, 200], [0.7, 0.71, 0.72]),
        (row, "phantom gradients", "NPG A(5, 0.5)"): ([0, 100], [0.9, 0.91]),
    }
    assert {*found["figure2_cox2_radius"].points["label"]} == {"implicit", "npg_k5_d0.5"}
    cells = table.sections[1].frame.set_index("Measured")["along implicit"]
    assert cells["cosine of UPG A(1, 1.0)"] == "0.715 (0.710 to 0.720)"  # exact from the second on
    assert cells["cosine of NPG A(5, 0.5)"] == "0.910 (0.910 to 0.910)"


def swept(form, k, d, seed):
    """A run whose best is 0.5 + k/100 + d/10, for NPG a tenth less; the last is less.

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
    runs = [swept(*one) for one in grid if one[:3] != ("npg", 3, 0.5)]
    found = plots(runs_table("figure3", [*runs, record("figure3/other/implicit", "s0", [0.8])]))
    plot = found.pop("figure3_digits")
    assert (found, plot.log, list(plot.ticks)) == ({}, "x", [1, 3, 9])
    curves, best = points(plot), "accuracy (%) ↑\nbest epoch"
    assert curves[best, "UPG", r"$\lambda = 0.5$"] == ([1, 3, 9], pytest.approx([56, 58, 64]))
    assert curves[best, "NPG", r"$\lambda = 0.5$"] == ([1, 9], pytest.approx([46, 54]))
    last = curves["accuracy (%) ↑\nlast epoch", "UPG", r"$\lambda = 1.0$"][1]
    assert last == pytest.approx([56, 58, 64])
    drawn = plot.points[plot.points["row"] == best]
    whiskers = (drawn["high"] - drawn["y"]).groupby([drawn["column"], drawn["label"]])
    error = math.sqrt(11 / 10)  # eleven points; the seeds differ by 4 points more at one of them
    widths = {key: values.tolist() for key, values in whiskers}
    assert widths["UPG", r"$\lambda = 1.0$"][-1] == pytest.approx(error * (2 - 2 / 11))
    assert widths["NPG", r"$\lambda = 0.5$"] == pytest.approx([error * 2 / 11] * 2)


@pytest.mark.parametrize(("direction", "chosen"), [("minimize", 0.3), ("maximize", 1.0)])
def test_searches_stand_at_their_mean_over_folds(direction, chosen):
    """Trials with a missing run or another objective are left out; the best one is marked."""

    def trial(damping, loss, fold, objective="validation/loss"):
        tune = {"objective": objective, "direction": direction}
        curves = {objective: [loss + 0.1 * fold, None]}
        row = f"tune/toy/upg_k5_d{damping}"
        config = {"label": {"reduced": []}, "gradient": gradient_of(row), "runtime": {"tune": tune}}
        hashed = f"{damping}{objective}"
        return record(row, f"fold{fold}", [0.9], curves=curves, config=config, config_hash=hashed)

    losses = {0.3: 0.4, 0.5: 0.5, 1.0: 0.7}
    runs = [trial(d, loss, fold) for d, loss in losses.items() for fold in (0, 1)]
    others = [trial(0.7, 0.1, 0), trial(0.1, 0.1, 0, "x"), record("tune/toy/implicit", "s", [0.8])]
    plot = plots(runs_table("tune", [*runs, *others]))["tune_toy"]
    assert plot.note == "means of 3 trials of 2 runs each"
    found = {label: at for (_, _, label), at in points(plot).items()}
    assert found["UPG, k = 5"] == ([0.3, 0.5, 1.0], pytest.approx([0.45, 0.55, 0.75]))
    assert found[f"chosen: UPG A(5, {chosen})"][0] == [chosen]


# Studies


def test_figure4_has_medians_by_iteration_and_a_gap_where_a_method_diverged():
    tanh = published("figure4/tanh")
    level = tanh.numbers["levels"][0]
    level["methods"][0]["l1_norm"][-1] = [None] * 5
    found = plots(study_table("figure4", tanh, published("figure4/linear")))
    assert list(found) == ["figure4_tanh", "figure4_linear"]
    panels = {name: {*plot.points["column"]} for name, plot in found.items()}
    assert [*map(len, panels.values())] == [2, 3]  # others do not change the condition number
    drawn = found["figure4_tanh"].points
    drawn = drawn[drawn["column"].str.contains("= 0.9$", regex=False)]
    forms = {f"NPG and UPG, λ = {d}" for d in (0.5, 1.0)}  # which no picture tells apart
    assert {*drawn["label"]} == {"Broyden", r"exact $\|g\|_1$", *forms}
    norm = drawn[(drawn["label"] == "Broyden") & drawn["row"].str.contains("_1")]["y"].tolist()
    assert norm[0] == level["methods"][0]["l1_norm"][0][2]
    assert math.isnan(norm[-1])
