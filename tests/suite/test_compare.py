"""Finished runs side by side."""

import pytest
from report.conftest import record

from phantomgrad_suite.compare import compare
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Result, write_record


@pytest.fixture
def run(tmp_path):
    """Write the record of a run; return its folder."""

    def written(name, values, steps=5, **changes):
        gradient = {"_target_": "phantomgrad.UnrolledPhantomGradient", "steps": steps}
        parts = {"gradient": gradient, "model": {"gradient": "${gradient}"}, "task": {}}
        config = {"seed": 0, "label": {"reduced": []}, **parts}
        curves = {"test/accuracy": values, "solver/evaluations": [10.0] * len(values)}
        weights = {"last": {"step": 4, "epoch": len(values)}} if values else {}
        made = record("t/a", name, values, config=config, curves=curves, weights=weights, **changes)
        write_record(made, tmp_path / name / "record.json")
        return tmp_path / name

    return written


def test_changed_settings_come_first_then_scores_and_costs(run, tmp_path):
    runs = [run("seed0", [0.5, 0.8]), run("seed0-steps_9", [0.6, None], steps=9)]
    table = compare(runs, tmp_path / "all.svg")
    first, second = map(str, runs)
    assert list(table.index)[:2] == ["gradient.steps", "accuracy (%) ↑, best"]
    assert list(table.loc["gradient.steps"]) == ["5", "9"]
    assert table[first]["accuracy (%) ↑, best"] == "80.0 (epoch 2)"
    assert table[second]["evaluations of f a solve"] == "14"
    figure = (tmp_path / "all.svg").read_text()
    assert "evaluations of f" in figure
    assert "epoch" in figure


def test_what_cannot_be_compared_is_said(run, tmp_path):
    one, figure = run("seed0", [0.5]), tmp_path / "all.svg"
    with pytest.raises(UserError, match="name at least two folders"):
        compare([one], figure)
    with pytest.raises(UserError, match="nowhere holds no finished run"):
        compare([one, tmp_path / "nowhere"], figure)
    other = run("seed1", [0.5], result=Result("micro_f1", 0.5, 1, 0.5))
    with pytest.raises(UserError, match="must share their metric, got accuracy and micro_f1"):
        compare([one, other], figure)
    lost = {"result": Result.missing("accuracy", "max"), "diverged": {"step": 1}}
    with pytest.raises(UserError, match="none of the runs was tested: nothing"):
        compare([run(name, [], **lost) for name in ("seed2", "seed3")], figure)
    assert not figure.exists()
