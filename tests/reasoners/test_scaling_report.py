"""The tables and figures of test-time scaling, from records made by hand."""

from dataclasses import replace

import pytest
from report.conftest import plots, points, published, rows, study_table

from phantomgrad_suite.report.document import DASH
from phantomgrad_suite.runs.errors import UserError

SETS = {"test": 0.1, "test/known_grids": 0.2}


def measured(seed, level, **changes):
    """Return a record with two test sets, in which accuracy grows from ``level`` by tenths."""
    at = [(name, n) for name in SETS for n in (2, 4)]
    unclear = dict.fromkeys(("auroc", "low", "high"))
    numbers = {
        "row": "reasoning/sudoku6",
        "instance": f"seed{seed}",
        "label": {"dataset": "Toy", "model": "TRM", "method": "2 of 5 steps"},
        "segments": 2,
        "sets": [{"set": name, "n": 10, "lost": 0.1} for name in SETS],
        "depth": [
            {"set": name, "segments": n + 1, "accuracy": level + 0.1 * n}
            for name in SETS
            for n in range(4)
        ],
        "breadth": [
            {"set": name, "segments": n, "starts": r, "rule": rule}
            | {"accuracy": level + SETS[name] + 0.1 * (r - 1) * (rule == "any")}
            for name, n in at
            for r in (1, 2)
            for rule in ("single", "vote", "logits", "state", "any")
        ],
        "errors": [
            {"set": name, "segments": n, "kind": kind, "unsolved": 3, **area}
            for name, n in at
            for kind, area in (
                ("logits", {"auroc": 0.9, "low": 0.8, "high": 1.0}),
                ("state", unclear),
            )
        ],
        **changes,
    }
    run = f"reasoning/sudoku6/seed{seed}"
    setting = {"run": run, "depth": 2, "starts": 2, "puzzles": 10}
    return published(
        "theorems/series", row=f"scaling/{run}", numbers=numbers, setting=setting, checks=[]
    )


def test_runs_that_differ_have_tables_of_their_own():
    """Another row, another configuration of it, or another setting of the study."""
    records = [
        measured(0, 0.4),
        measured(0, 0.4, row="reasoning/minimal_j7"),
        measured(0, 0.4, instance="seed0-abcd1234"),
        measured(0, 0.4),
    ]
    records[3].setting["starts"] = 4
    records[3] = replace(records[3], instance="seed0-ffff5678", changes=["setting.starts=4"])
    table = study_table("scaling", *records)
    titles = [section.title for section in table.sections if "depth" in section.title]
    assert len(titles) == 4
    assert sum("[abcd1234]" in title for title in titles) == 1
    assert sum("[setting.starts=4]" in title for title in titles) == 1
    assert len(plots(table)) == 4


def test_tables_have_a_line_for_each_set_and_run():
    depth, breadth, errors, *_ = study_table("scaling", measured(0, 0.4), measured(1, 0.5)).sections
    assert rows(depth)[1] == {
        "Puzzles": "Known grids",
        "1 segment": "45.0 ± 7.1",
        "2 segments (training)": "55.0 ± 7.1",
        "4 segments": "75.0 ± 7.1",
        "Lost": "10.0 ± 0.0",
    }
    cells = rows(breadth)
    place = [(c["Puzzles"], c["Segments"], c["Starts"]) for c in cells]
    assert place == [(s, n, r) for s in ("New grids", "Known grids") for n in "24" for r in "12"]
    assert (cells[-1]["Majority"], cells[-1]["Any right"]) == ("65.0 ± 7.1", "75.0 ± 7.1")
    assert len(errors.frame) == 2 * 2 * 2
    assert rows(errors)[0] == {
        "Run": "seed0",
        "Puzzles": "New grids",
        "Segments": "2",
        "Unsolved": "3 of 10",
        "AUROC, logits": "0.900 [0.800, 1.000]",
        "AUROC, state": DASH,
    }


def test_the_figure_has_all_rules():
    ((name, figure),) = plots(study_table("scaling", measured(0, 0.4), measured(1, 0.5))).items()
    assert name == "scaling_reasoning_sudoku6"
    curves = points(figure)
    row = "known grids\nexact accuracy (%)"
    assert curves[row, "segments", "the model's own start"] == (
        [1, 2, 3, 4],
        pytest.approx([45, 55, 65, 75]),
    )
    assert curves[row, "starts, 4 segments", "any right"] == ([1, 2], pytest.approx([65, 75]))
    assert curves[row, "starts, 4 segments", "majority"] == ([1, 2], pytest.approx([65, 65]))
    band = figure.points["high"] - figure.points["y"]
    assert band.to_list() == pytest.approx([5.0] * len(band))


@pytest.mark.parametrize("layout", [{"sets": [{"name": "test"}]}, {"sets": [0.5]}])
def test_a_record_of_an_earlier_layout_is_named(layout):
    record = measured(0, 0.4)
    with pytest.raises(UserError, match="seed0 was measured by an earlier version: run it again"):
        study_table("scaling", replace(record, numbers={**record.numbers, **layout}))
