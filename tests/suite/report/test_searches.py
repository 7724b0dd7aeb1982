"""Tables and figures of searches: the objective by λ, the chosen trial, its test value."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report.conftest import record

from phantomgrad_suite.report.experiments.runs import objective_of
from phantomgrad_suite.runs.records import Record, Result
from report import conftest

LOSS = {"objective": "validation/loss", "direction": "minimize"}


def trial(
    damping: float,
    loss: float,
    *,
    k: int = 5,
    fold: int = 0,
    **changes: Any,
) -> Record:
    """A run whose validation loss falls to ``loss`` and rises again; fold 1 is worse by 0.1."""
    loss += 0.1 * fold
    content: dict[str, Any] = {
        "label": {"dataset": "Toy", "model": "IGNN", "method": f"UPG A({k}, {damping})"},
        "result": Result("accuracy", 0.9, 1, 0.8, selected=damping - 0.1 * fold, selected_epoch=2),
        "curves": {"test/accuracy": [0.9, 0.8, 0.7], "validation/loss": [loss + 1, loss, None]},
        "config": {"runtime": {"tune": LOSS}},
        "config_hash": f"{k}{damping}",
    }
    return record(
        f"tune/toy/upg_k{k}_d{damping}", f"fold{fold}", [0.9, 0.8, 0.7], **{**content, **changes}
    )


def search() -> list[Record]:
    """λ = 0.3 is the best by a little; 0.7 would be, but one of its runs is missing."""
    losses = {0.3: 0.4, 0.5: 0.5, 0.8: 0.6, 1.0: 0.7}
    whole = [trial(d, loss, fold=f) for d, loss in losses.items() for f in (0, 1)]
    return [*whole, trial(0.7, 0.1)]


def figures(records: list[Record]) -> dict[str, Figure]:
    return conftest.figures(conftest.runs_table("tune", records))


def marks(axes: Axes, size: float) -> list[tuple[float, float]]:
    """Return where marks of a size are."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.lines
        if line.get_markersize() == size and line.get_marker() in ("o", "s", ".")
    ]


RING, MEAN, RUN = 11, 5, 3.5


def test_objective_is_that_of_the_best_epoch() -> None:
    assert objective_of(trial(0.5, 0.4)) == ("validation/loss", 1, 0.4)
    large = trial(0.5, 0.4, config={"runtime": {"tune": LOSS | {"direction": "maximize"}}})
    assert objective_of(large) == ("validation/loss", -1, 1.4)
    assert objective_of(trial(0.5, 0.4, config={})) is None
    assert objective_of(trial(0.5, 0.4, curves={"validation/loss": [None]})) is None


def test_trials_stand_at_their_mean_over_folds() -> None:
    """Those with a missing run are left out; the least mean is ringed, the paper's λ are marked."""
    found = figures(search())
    assert list(found) == ["tune_toy"]
    left, _ = found["tune_toy"].axes
    means = [(d, pytest.approx(loss)) for d, loss in ((0.3, 0.45), (0.5, 0.55), (0.8, 0.65))]
    assert sorted(marks(left, MEAN)) == [*means, (1.0, pytest.approx(0.75))]
    assert marks(left, RING) == [means[0]]
    vertical = [line.get_xdata()[0] for line in left.lines if line.get_linestyle() != "None"]
    assert vertical == [0.5, 0.8, 1.0]
    assert left.get_ylabel() == "validation loss, best epoch ↓"


def test_single_runs_are_without_what_folds_differ_by() -> None:
    """Fold 1 is worse by the same everywhere: without that all runs of a trial lie on its mean."""
    left, _ = figures(search())["tune_toy"].axes
    assert len(marks(left, RUN)) == 8
    means = dict(marks(left, MEAN))
    assert all(value == pytest.approx(means[d]) for d, value in marks(left, RUN))


def test_test_values_are_of_the_chosen_trial_and_the_papers_dampings() -> None:
    """At the epoch selected on validation data, in the order chosen, then the paper's λ."""
    records = [*search(), *(trial(0.9, 0.9, fold=f) for f in (0, 1))]
    _, right = figures(records)["tune_toy"].axes
    drawn = [container.lines[0] for container in right.containers]
    values = [float(line.get_ydata()[0]) for line in drawn]
    assert values == pytest.approx([25, 45, 75, 95])
    (bars,) = right.containers[0].lines[2]
    assert bars.get_segments()[0][:, 1] == pytest.approx([20, 30])
    labels = [label.get_text().splitlines()[0] for label in right.get_xticklabels()]
    assert labels == [rf"$\lambda = {d}$" for d in ("0.3", "0.5", "0.8", "1")]
    assert marks(right, RING) == [(0, pytest.approx(25))]


def test_largest_is_chosen_where_more_is_better() -> None:
    tune = {"objective": "validation/accuracy", "direction": "maximize"}
    records = [
        trial(d, 0, config={"runtime": {"tune": tune}}, curves={"validation/accuracy": [d, 0.0]})
        for d in (0.2, 0.9, 0.4)
    ]
    left, _ = figures(records)["tune_toy"].axes
    assert marks(left, RING) == [(0.9, 0.9)]
    assert left.get_ylabel() == "validation accuracy, best epoch ↑"


def test_other_rows_have_no_picture() -> None:
    assert figures([record("tune/toy/implicit", "seed0", [0.8])]) == {}
    assert figures([trial(0.5, 0.4, config={})]) == {}


def test_the_command_draws_it_and_the_table_has_the_objective(results: Any, capsys: Any) -> None:
    curves = {"test/accuracy": [0.8, 0.7], "validation/loss": [0.31, 0.52]}
    known = {"curves": curves, "config": {"runtime": {"tune": LOSS}}}
    results.add("tune/toy/a_d0.5/upg_k5_d0.5", "seed0", [0.8, 0.7], **known)
    assert results.report("tune") == 0
    text = capsys.readouterr().out
    assert text.startswith("# Tuning: λ chosen on validation data")
    assert "- Searched by: the objective by which the search compares trials" in text
    (row,) = results.rows("tune")
    assert row["Searched by"] == "validation loss 0.3100"
    names = {path.name for path in (results.path / "figures").iterdir()}
    assert names == {f"tune_toy_a_d05.{kind}" for kind in ("png", "svg", "pdf")}
