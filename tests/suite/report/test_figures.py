"""Figures: the points that they draw, the look of a line, and the files."""

import math
from dataclasses import replace

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
    rows,
    runs_table,
    study_table,
)

from phantomgrad_suite.report.document import DASH, markdown
from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.run_figures import mean_curve
from phantomgrad_suite.report.figures.style import (
    FAMILIES,
    FORMATS,
    Lines,
    curve,
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


def test_a_band_is_the_standard_error_over_the_runs_that_have_a_value():
    runs = [[1.0, 2.0], [2.0, math.nan], [3.0, 4.0]]
    found = mean_curve("a", [np.array(run) for run in runs], ("row", "column"), [1, 2, 3])
    assert found["low"].tolist() == pytest.approx([2 - 3**-0.5, 2.0])


def test_members_of_a_family_share_a_colour_and_differ_in_dash_and_marker():
    families = {"implicit": "implicit", "UPG 1": "UPG", "UPG 2": "UPG", "other": ""}
    parts = [curve(label, [1], [1], family=family) for label, family in families.items()]
    looks = looks_of(pd.concat(parts))
    assert [*looks["color"][:3]] == [FAMILIES[f] for f in ("implicit", "UPG", "UPG")]
    assert looks["color"]["other"] not in FAMILIES.values()
    assert looks["dashes"]["UPG 1"] != looks["dashes"]["UPG 2"]
    assert looks["marker"]["UPG 1"] != looks["marker"]["UPG 2"]


def test_names_at_ends_keep_their_order_and_a_distance():
    assert spread([0.1, 0.9, 0.5], 0.1) == pytest.approx([0.1, 0.9, 0.5])
    assert spread([0.5, 0.52, 0.51], 0.1) == pytest.approx([0.5, 0.7, 0.6])
    crowded = spread([1.0] * 4, 0.1)
    assert np.diff(crowded) == pytest.approx([0.1] * 3)
    assert max(crowded) == pytest.approx(1.05)
    assert pretty("UPG A(9, 0.5)") == pretty("UPG A(9,\n0.5)") == r"UPG $A_{9,\,0.5}$"


def test_curves_that_no_picture_tells_apart_are_drawn_once():
    values = {"NPG, k": [1.0, 2.0], "UPG, k": [1.0005, 2.0], "UPG": [1.0, 2.1]}
    points = once(pd.concat([curve(label, [1, 2], y) for label, y in values.items()]))
    assert [*points["label"].unique()] == ["NPG and UPG, k", "UPG"]
    apart = once(pd.concat([curve("NPG", [1], [1]), curve("UPG", [1], [1], "elsewhere")]))
    assert [*apart["label"].unique()] == ["NPG", "UPG"]


def test_the_same_figure_gives_the_same_bytes_in_every_format(results):
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    assert results.report("table9") == 0
    (path,) = (results.path / "figures").iterdir()
    (plot,) = plots_of(results.table("table9"))
    assert render(plot.draw, FORMATS) == {
        **render(plot.draw),
        "pdf": render(plot.draw, ["pdf"])["pdf"],
    }
    assert (path.name, path.read_bytes()) == ("table9_toy_curves.svg", render(plot.draw)["svg"])


def test_tables_and_figures_of_this_repository_are_those_of_its_records():
    """``make report`` updates them after a change of records; no figure is left over."""
    results = REPOSITORY / "results"
    tables = [load(key, PUBLISHED) for key in known_tables(PUBLISHED)]
    for table in tables:
        written = results / "tables" / f"{table.key}.md"
        assert written.read_text(encoding="utf-8") == markdown(table), written
    found = [plot for table in tables for plot in plots_of(table)]
    names = sorted([*(f"{plot.name}.svg" for plot in found), "claims.svg"])
    assert names == sorted(path.name for path in (results / "figures").glob("*.svg"))
    assert all(plot.title and plot.caption for plot in found)


# Runs


def test_runs_of_unknown_cost_are_drawn_by_epoch():
    """Of means over the runs; reduced runs and searches are left out."""
    values = {"implicit": [[0.5, None, 0.7], [0.7, 0.6, 0.9]], "upg_k5_d0.5": [[0.6, 0.5]]}
    runs = [
        record(f"t/{row}", f"seed{i}", v, label={"dataset": "Toy", "method": row}, config_hash=row)
        for row, each in values.items()
        for i, v in enumerate(each)
    ]
    short = record("t/a", "seed1", [0.1], protocol="reduced", changes=["x=1"])
    (plot,) = plots_of(runs_table("t", [*runs, short]))
    assert points(plot) == {
        (ROW, "epoch", "implicit"): ([1, 2, 3], pytest.approx([60, 60, 80])),
        (ROW, "epoch", "upg_k5_d0.5"): ([1, 2], pytest.approx([60, 50])),
    }
    assert plot.points["low"].max() == pytest.approx(70)  # 80 less a standard error, with ddof 1
    assert (plot.name, plot.log) == ("t_toy_curves", "")
    assert plot.title == "T, Toy: last epochs from 50.0 (upg_k5_d0.5) to 80.0 (implicit)"


def test_the_metric_is_drawn_by_time_and_by_evaluations():
    """The unit of time is an evaluation of f of the same run; the metric is that of all runs."""

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
    runs.append(trained("cox2_upg_k5_d0.5", "seed2", 5))
    del runs[-1].curves["seconds/f_cpu"]
    runs[-1].curves["test/accuracy"] = [0.8, 1.0]
    runs += [trained("cox2_implicit", "seed0", 1, weights={}), trained("other", "seed0", 1)]
    time, work = "processor time in thousand evaluations of f", "thousand evaluations of f"
    label = {"dataset": "Toy", "model": "IGNN", "method": "untimed"}
    runs.append(trained("ppi_npg_k5_d0.5", "seed0", 1, label=label))
    del runs[-1].curves["seconds/f_cpu"]
    found = points(plots(runs_table("table4", runs))["table4_toy_cost"])
    untimed = found.pop((ROW, work, "untimed"))
    assert untimed == (pytest.approx([0.1, 0.18]), pytest.approx([50, 70]))
    assert found == {
        (ROW, time, "Implicit"): (pytest.approx([4 / 200, 9 / 200]), pytest.approx([60, 80])),
        (ROW, work, "Implicit"): (pytest.approx([0.18, 0.34]), pytest.approx([60, 80])),
    }


# Figures 2 and 3


def test_precision_along_training():
    """There are cosines along exact training, of estimators as they are configured."""
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
    assert list(found) == ["figure2_cox2_cosines"]
    row = "cosine along training\nimplicit"
    assert points(found["figure2_cox2_cosines"]) == {
        (row, "phantom gradients", "UPG A(1, 1.0)"): ([100, 200], [0.71, 0.72]),
        (row, "phantom gradients", "NPG A(5, 0.5)"): ([100], [0.91]),
    }  # exact from the second on
    lost = {**curves, "precision/exact/adjoint_residual": [0.1, 0.5, None]}
    assert not plots(runs_table("figure2", [replace(run, curves=lost) for run in runs]))
    families = found["figure2_cox2_cosines"].points.set_index("label")["family"]
    assert {*families["UPG A(1, 1.0)"]} == {"one step"}  # as that of a run
    cells = table.sections[1].frame.set_index("Measured")["along implicit"]
    assert cells["cosine of UPG A(1, 1.0)"] == "0.715 (0.710 to 0.720)"
    assert cells["cosine of NPG A(5, 0.5)"] == "0.910 (0.910 to 0.910)"
    assert cells["spectral radius of F"] == "0.767 (0.500 to 1.200)"  # needs no exact gradient


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
    """There is a panel for each form; missing points and rows of other gradients are left out."""
    grid = [
        (f, k, d, s) for f in ("upg", "npg") for k in (1, 3, 9) for d in (0.5, 1) for s in (0, 1)
    ]
    runs = [swept(*one) for one in grid if one[:3] != ("npg", 3, 0.5)]
    found = plots(runs_table("figure3", [*runs, record("figure3/other/implicit", "s0", [0.8])]))
    plot = found.pop("figure3_digits_digits")
    assert (found, plot.log) == ({}, "x")
    curves, last = points(plot), "accuracy (%) ↑\nlast epoch"
    assert curves[last, "UPG", "UPG, λ = 0.5"] == ([1, 3, 9], pytest.approx([51, 53, 59]))
    assert curves[last, "NPG", "NPG, λ = 0.5"] == ([1, 9], pytest.approx([41, 49]))
    errors = (plot.points["high"] - plot.points["y"]).groupby(plot.points["label"])
    widths = {key: values.tolist() for key, values in errors}
    error = math.sqrt(11 / 10)  # eleven points; the seeds differ by 4 points more at one of them
    assert widths["UPG, λ = 1.0"][-1] == pytest.approx(error * (2 - 2 / 11))
    assert widths["NPG, λ = 0.5"] == pytest.approx([error * 2 / 11] * 2)


def test_sweeps_keep_changed_rows_and_other_data_apart():
    """As the table does: of one curve, no two points are at one k, and its band is its own."""
    runs = [swept("upg", k, 0.5, seed) for k in (1, 3) for seed in (0, 1)]
    changed = [
        replace(run, protocol="reduced", changes=["x=1"], instance=f"{run.instance}-abc")
        for run in runs
    ]
    elsewhere = {"dataset": "Other", "model": "DEQ", "method": "UPG A(1, 0.5)"}
    runs += [*changed, replace(runs[0], label=elsewhere, data={"fingerprint": "sha256:bb"})]
    found = plots(runs_table("figure3", runs))
    assert list(found) == ["figure3_digits_digits", "figure3_digits_other"]
    curves = points(found["figure3_digits_digits"])
    labels = ["UPG, λ = 0.5", "UPG, λ = 0.5 [reduced: x=1]"]
    assert [label for *_, label in curves] == labels
    assert [x for x, _ in curves.values()] == [[1, 3], [1, 3]]
    assert found["figure3_digits_digits"].points["low"].notna().all()


# Studies


def test_figure4_has_medians_by_iteration_and_a_gap_where_a_method_diverged():
    tanh = published("figure4/tanh")
    level = tanh.numbers["levels"][0]
    level["methods"][0]["l1_norm"][-1] = [None] * 5
    table = study_table("figure4", tanh, published("figure4/linear"))
    assert rows(table.sections[0])[0]["L1 norm"] == DASH
    found = plots(table)
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


def test_figure4_has_a_title_where_all_phantom_gradients_diverged():
    record = published("figure4/linear")
    for method in record.numbers["levels"][-1]["methods"]:
        method["cosine"][-1] = [None] * 5
    (plot,) = plots_of(study_table("figure4", record))
    assert plot.title.endswith("phantom gradients all diverge")
