"""Tables and figures of searches: the objective by λ, and the chosen trial."""

import pytest
from report.conftest import gradient_of, plots, points, record, runs_table

from phantomgrad_suite.report.experiments.runs import Runs

LOSS = {"objective": "validation/loss", "direction": "minimize"}
LABEL = "validation loss, best epoch ↓", ""


def trial(damping, loss, fold=0, **changes):
    """A run whose validation loss falls to ``loss`` and rises again; fold 1 is worse by 0.1."""
    loss += 0.1 * fold
    content = {
        "label": {"dataset": "Toy", "model": "IGNN", "method": f"UPG A(5, {damping})"},
        "curves": {"test/accuracy": [0.9, 0.8, 0.7], "validation/loss": [loss + 1, loss, None]},
        "config": {"runtime": {"tune": LOSS}},
        "config_hash": f"{damping}",
    }
    row, instance = f"tune/toy/upg_k5_d{damping}", f"fold{fold}"
    content |= changes
    content["config"] = {**content["config"], "gradient": gradient_of(row)}
    return record(row, instance, [0.9, 0.8, 0.7], **content)


def objective(run):
    stat = Runs([run]).objective
    return stat.mean if stat else None


def test_objective_is_that_of_the_best_epoch():
    assert objective(trial(0.5, 0.4)) == 0.4
    large = {"runtime": {"tune": LOSS | {"direction": "maximize"}}}
    assert objective(trial(0.5, 0.4, config=large)) == 1.4
    assert objective(trial(0.5, 0.4, config={})) is None
    assert objective(trial(0.5, 0.4, curves={"validation/loss": [None]})) is None


def test_trials_stand_at_their_mean_over_folds():
    """Trials with a missing run or another variant are left out; the best one is marked."""
    losses = {0.3: 0.4, 0.5: 0.5, 1.0: 0.7}
    whole = [trial(d, loss, fold) for d, loss in losses.items() for fold in (0, 1)]
    short = {"protocol": "reduced", "changes": ["less"]}
    others = [trial(0.7, 0.1), trial(0.1, 0.1, **short), trial(0.1, 0.1, 1, **short)]
    found = plots(runs_table("tune", [*whole, *others]))
    assert list(found) == ["tune_toy"]
    assert found["tune_toy"].note == "means of 3 trials of 2 runs each"
    assert points(found["tune_toy"]) == {
        (*LABEL, "UPG, k = 5"): ([0.3, 0.5, 1.0], pytest.approx([0.45, 0.55, 0.75])),
        (*LABEL, "chosen: UPG A(5, 0.3)"): ([0.3], [pytest.approx(0.45)]),
    }


def test_largest_is_chosen_where_more_is_better():
    tune = {"objective": "validation/accuracy", "direction": "maximize"}
    runs = [
        trial(d, 0, config={"runtime": {"tune": tune}}, curves={"validation/accuracy": [d, 0.0]})
        for d in (0.2, 0.9, 0.4)
    ]
    *_, chosen = plots(runs_table("tune", runs))["tune_toy"].curves
    assert (chosen.label, chosen.row) == (
        "chosen: UPG A(5, 0.9)",
        "validation accuracy, best epoch ↑",
    )


def test_trials_of_another_objective_are_left_out():
    other = {"objective": "validation/accuracy", "direction": "maximize"}
    curves = {"validation/accuracy": [0.9]}
    runs = [trial(0.3, 0.4), trial(0.5, 0.5)]
    runs += [trial(1.0, 0.9, config={"runtime": {"tune": other}}, curves=curves)]
    *_, chosen = plots(runs_table("tune", runs))["tune_toy"].curves
    assert (chosen.label, chosen.row) == ("chosen: UPG A(5, 0.3)", LABEL[0])


def test_other_rows_have_no_picture():
    runs = [record("tune/toy/implicit", "seed0", [0.8]), trial(0.5, 0.4, config={})]
    assert plots(runs_table("tune", runs)) == {}


def test_the_table_has_the_objective(results):
    results.write(trial(0.5, 0.31))
    (row,) = results.rows("tune")
    assert row["Searched by"] == "validation loss 0.3100"
    text = results.markdown("tune")
    assert "- Searched by: the objective by which the search compares trials" in text
