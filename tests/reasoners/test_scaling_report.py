"""The tables and figures of test-time scaling, from records made by hand."""

from dataclasses import replace

import pytest
from report.conftest import plots, points, published, study_table

COUNTS = {"solved": [0] * 40 + [6, 2] + [0] * 18, "unsolved": [0] * 41 + [1, 1] + [0] * 17}


def measured(seed, level, **changes):
    """Return a record with two test sets, in which accuracy grows from ``level`` by tenths."""

    def part(name, more):
        rule = dict.fromkeys(("single", "vote", "logits", "state", "any"), level + more)
        found = {**COUNTS, "auroc": [0.9, 0.8, 1.0]}
        unclear = {**COUNTS, "auroc": None}
        return {
            "name": name,
            "n": 10,
            "lost": 0.1,
            "accuracy": [level, level + 0.1, level + 0.2, level + 0.3],
            "breadth": [
                {"segments": n, "starts": r, **rule, "any": level + more + 0.1 * (r - 1)}
                for n in (2, 4)
                for r in (1, 2)
            ],
            "residuals": [{"segments": n, "logits": found, "state": unclear} for n in (2, 4)],
        }

    numbers = {
        "row": "reasoning/sudoku6",
        "instance": f"seed{seed}",
        "label": {"dataset": "Toy", "model": "TRM", "method": "2 of 5 steps"},
        "segments": 2,
        "random_start": False,
        "sets": [part("test", 0.1), part("test/known_grids", 0.2)],
        "nearly": [{"missing": m, "n": 10, "lost": 0.0, "accuracy": [1.0] * 4} for m in (0, 3)],
        **changes,
    }
    run = f"reasoning/sudoku6/seed{seed}"
    setting = {"run": run, "depth": 2, "starts": 2, "puzzles": 10, "missing": [0, 3]}
    return published(
        "theorems/series", row=f"scaling/{run}", numbers=numbers, setting=setting, checks=[]
    )


def test_runs_that_differ_have_tables_of_their_own():
    """Another row, another configuration of it, or another setting of the study."""
    records = [
        measured(0, 0.4),
        measured(0, 0.4, row="reasoning/minimal_j7"),
        measured(0, 0.4, instance="seed0-abcd1234"),
        measured(0, 0.4, random_start=True),
    ]
    records[3].setting["starts"] = 4
    records[3] = replace(records[3], instance="seed0-ffff5678", changes=["setting.starts=4"])
    table = study_table("scaling", *records)
    titles = [section.title for section in table.sections if "depth" in section.title]
    assert len(titles) == 4
    assert sum("[abcd1234]" in title for title in titles) == 1
    assert sum("[setting.starts=4]" in title for title in titles) == 1
    texts = [section.text for section in table.sections if "breadth" in section.title]
    assert sum("random in training" in text for text in texts) == 1
    assert len(plots(table)) == 2 * 4


def test_figures_have_the_rules_and_the_residuals():
    found = plots(study_table("scaling", measured(0, 0.4), measured(1, 0.5)))
    assert set(found) == {*("scaling_reasoning_sudoku6", "scaling_reasoning_sudoku6_residual")}
    curves = points(found["scaling_reasoning_sudoku6"])
    row = "known grids\nexact accuracy (%)"
    assert curves[row, "segments", "the model's own start"] == (
        [1, 2, 3, 4],
        pytest.approx([45, 55, 65, 75]),
    )
    assert curves[row, "starts, 4 segments", "any right"] == ([1, 2], pytest.approx([65, 75]))
    spread = points(found["scaling_reasoning_sudoku6_residual"])
    for panel in (("logits\npuzzles (%)", "2 segments"), ("state\npuzzles (%)", "4 segments")):
        x, solved = spread[*panel, "solved"]
        assert x == pytest.approx([10 ** (-4 + (2 * i + 1) / 20) for i in range(39, 44)])
        assert solved == [0, 75, 25, 0, 0]
        assert spread[*panel, "unsolved"][1] == [0, 0, 50, 50, 0]
