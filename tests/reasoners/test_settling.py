"""Halting and starts: rules by hand, the study of a run, and its report."""

import pandas as pd
import pytest
import torch
from report.conftest import plots, points, published, study_table

from phantomgrad_reasoners.settling import (
    Settling,
    agreement,
    cheapest,
    drift,
    equal_answers,
    first,
    rule_of,
)
from phantomgrad_reasoners.traces import Trace
from phantomgrad_suite.runs.records import read_any


def found(answers, solved, changes, halting=None):
    """A trace of answers of one cell, and the changes of its state, ``(T, B)`` each."""
    answers, solved, changes = map(torch.tensor, (answers, solved, changes))
    halting = changes * 0 - 1 if halting is None else torch.tensor(halting)
    both = torch.stack([changes * 0, changes], dim=-1)
    return Trace(answers[:, :, None], solved.bool(), both, halting, torch.ones(1, 2, 1, 3))


def test_equal_answers_in_a_row_are_counted():
    """An answer that comes back begins anew; a puzzle that no rule stops takes all segments."""
    answers = torch.tensor([[1, 5], [1, 6], [2, 5], [1, 5], [1, 5]])[:, :, None]
    equal = equal_answers(answers)
    assert equal.T.tolist() == [[1, 2, 1, 1, 2], [1, 1, 1, 2, 3]]
    assert first(equal >= 2).tolist() == [1, 3]
    assert first(equal >= 3).tolist() == [4, 4]
    assert first(equal >= 4).tolist() == [4, 4]


TRACE = found(
    answers=[[1, 4], [2, 5], [2, 5], [2, 6], [2, 6]],
    solved=[[0, 0], [1, 0], [1, 0], [1, 1], [1, 1]],
    changes=[[0.0, 0.0], [3.0, 5.0], [0.5, 3.0], [0.3, 0.3], [0.1, 0.1]],
    halting=[[-1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]],
)
STUDY = Settling(run="r", thresholds=(4.0, 1.0, 0.2), agreeing=(2, 3))


def test_each_puzzle_stops_on_its_own():
    """The first segment has no residual: it has nothing before it."""
    stops = {rule: first(s).tolist() for rule, s in STUDY.stops(TRACE, learned=True).items()}
    assert stops == {
        **{("fixed", float(n + 1)): [n, n] for n in range(5)},
        ("learned", 0.0): [1, 0],
        ("residual", 4.0): [1, 2],
        ("residual", 1.0): [2, 3],
        ("residual", 0.2): [4, 4],
        ("agreement", 2.0): [2, 2],
        ("agreement", 3.0): [3, 4],
    }
    assert ("learned", 0.0) not in STUDY.stops(TRACE, learned=False)


def test_the_cheapest_setting_that_loses_nothing_is_chosen():
    """The learned halt and two equal answers stop the second puzzle too early."""
    rows = {rule_of(row): row for row in STUDY.halting(TRACE, learned=True)}
    chosen = cheapest([*rows.values()], accuracy=1.0)
    assert chosen == {("fixed", 4.0), ("residual", 1.0), ("agreement", 3.0)}
    assert rows["residual", 1.0]["segments"] == 3.5
    assert rows["residual", 1.0]["accuracy"] == 1.0
    assert rows["learned", 0.0]["segments"] == 1.5
    assert rows["learned", 0.0]["accuracy"] == 0.5


def test_starts_agree_where_answers_and_states_do():
    other = TRACE._replace(
        answers=TRACE.answers.clone(), end=torch.tensor([[[[1.0, 1, 1]], [[1, 1, 4]]]])
    )
    other.answers[-1, 1] = 7
    own = TRACE._replace(solved=TRACE.solved & torch.tensor([True, False]))
    distance = 3 / 3**0.5
    assert [*agreement(own, other, own)] == [
        {"puzzles": "all", "answers": 0.75, "distance": pytest.approx(distance / 4)},
        {"puzzles": "solved", "answers": 1.0, "distance": 0.0},
        {"puzzles": "unsolved", "answers": 0.5, "distance": pytest.approx(distance / 2)},
    ]
    assert [row["puzzles"] for row in agreement(TRACE, other)] == ["all", "solved"]


def test_drift_tells_what_is_unsolved():
    """Of the changes after two segments, the unsolved puzzles have the larger ones."""
    changes = torch.tensor([[0.0] * 4, [9.0] * 4, [1.0, 2, 3, 4], [1.0, 2, 3, 4]])
    both = torch.stack([changes, changes], dim=-1)
    for solved, area in (([1, 1, 0, 0], 1.0), ([0, 0, 1, 1], 0.0), ([1, 0, 1, 0], 0.75)):
        rows = torch.tensor(solved).bool().expand(4, 4)
        assert drift(Trace(changes, rows, both, changes, changes), 2)["auroc"] == area
    assert drift(Trace(changes, changes > -1, both, changes, changes), 2)["auroc"] is None


ROW = (
    *("experiment=reasoning/sudoku6_halting", "dataset.train=64", "dataset.validation=8"),
    *("dataset.test=24", "dataset.batch_size=16", "model.width=16", "trainer.max_epochs=2"),
    *("task.segments=2", "task.evaluated_segments=[]"),
)


def test_the_study_of_a_run(workplace):
    """Stopping is never dearer than all segments, and its accuracy is that of some segment."""
    folder = workplace.train(*ROW)
    run = f"run={folder.relative_to(workplace.path / 'runs')}"
    settings = ("setting.depth=2", "setting.starts=2", "setting.puzzles=32")
    numbers = read_any(workplace.study("study=settling", run, *settings) / "record.json").numbers
    assert [(row["set"], row["n"]) for row in numbers["sets"]] == [
        ("test", 32),
        ("test/known_grids", 32),
    ]
    rules = {"fixed", "learned", "residual", "agreement"}
    assert {(row["set"], row["rule"]) for row in numbers["halting"]} == {
        (part["set"], rule) for part in numbers["sets"] for rule in rules
    }
    assert all(1 <= row["segments"] <= 4 for row in numbers["halting"])
    assert all(row["distance"] > 0 for row in numbers["starts"] if row["puzzles"] == "all")


def measured(seed):
    return published(f"settling/reasoning/sudoku6_halting/seed{seed}")


def test_the_figure_has_a_curve_for_each_rule():
    """Of means over the runs, by the mean number of segments used."""
    records = [measured(0), measured(1)]
    (figure,) = plots(study_table("settling", *records)).values()
    halting = pd.concat(pd.DataFrame(record.numbers["halting"]) for record in records)
    numbers = halting[halting["set"] == "test"].groupby(["rule", "setting"], sort=False)
    means = numbers[["segments", "accuracy"]].mean()
    curves = points(figure)
    for rule, label in {"fixed": "the same for all", "residual": "small residual"}.items():
        assert curves["exact accuracy (%)", "new grids", label] == (
            pytest.approx(means.loc[rule]["segments"].tolist()),
            pytest.approx((100 * means.loc[rule]["accuracy"]).tolist()),
        )
    longest = 100 * means.loc["fixed", 16.0]["accuracy"]
    assert f": by residual, {longest:.1f} % with " in figure.title
    assert figure.title.endswith(" of 16 segments")


def test_halting_that_always_loses_saves_no_segment():
    record = measured(0)
    for row in record.numbers["halting"]:
        row["accuracy"] -= row["rule"] == "residual"
    (figure,) = plots(study_table("settling", record)).values()
    assert figure.title.endswith(" % with no fewer of 16 segments")
