"""Searches that are refused, with one line, before anything is run."""

import re
import sys
from pathlib import Path

import pytest
from training import Script
from tuning.conftest import ROW, SHORT

from phantomgrad_suite.runs.folder import RunFolder


def test_data_without_validation_part_are_refused(script: Script, small_tu: Path) -> None:
    row = ("experiment=table4/cox2_upg_k5_d0.5", f"runtime.dataset.root={small_tu}")
    done = script("tune=lambda", *row)
    assert done.code == 1
    assert re.search(r"^tune needs a validation part, and COX2 has none .*stratified", done.err)
    assert len(done.err.splitlines()) == 1
    assert not Path("runs/tune/table4").exists()
    short = ("trainer.max_epochs=1", "runtime.tune.trials=1")
    assert script("tune=lambda", *row, "dataset.split=stratified", *short).code == 0


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["runtime.tune.objective=test/loss"], "objective must be of validation/, got 'test/loss'"),
        (["runtime.tune.direction=down"], "direction must be minimize or maximize, got 'down'"),
        (["runtime.tune.trials=0"], "runtime.tune: trials must be at least 1, got 0"),
        (["runtime.tune.step=0"], "step must divide the interval of .*, 0.1 to 1.0, got 0"),
        (["runtime.tune.step=0.07"], r"step must divide the interval of gradient.damping, 0.1 to"),
        (["gradient.damping=0.5"], "nothing to search: sweep a setting, as in gradient.damping="),
        (["experiment=chains/upg_k5_d0.5,digits/upg_k5_d0.5"], "settings of one experiment"),
        (["seed=interval(0,3)"], r"seed=interval\(0,3\) cannot be repeated over: list the values"),
        (["experiment=chains/implicit"], r"^Could not override 'gradient\.damping'"),
        (["cluster=list"], "waits for its runs: use cluster=local or none, got cluster=list"),
        (
            ["runtime.tune.objective=validation/perplexity", "runtime.tune.trials=1"],
            "must be one of validation/accuracy, validation/loss, got 'validation/perplexity'",
        ),
    ],
)
def test_impossible_searches_are_refused(script: Script, overrides: list[str], reason: str) -> None:
    done = script(*SHORT, *overrides)
    assert done.code == 1
    assert re.search(reason, done.err)
    assert "Traceback" not in done.err


def test_missing_optuna(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "phantomgrad_suite.tuning", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    done = script(*SHORT)
    message = "tune needs the package optuna: pip install -e '.[tune]' in the checkout"
    assert (done.code, done.err.strip()) == (1, message)


def test_search_that_another_process_runs_is_left_to_it(script, workplace) -> None:
    with RunFolder(workplace.path / "runs" / "tune" / ROW).locked() as locked:
        assert locked
        done = script(*SHORT)
    assert done.code == 1
    assert "another process runs the search in runs/tune/chains/upg_k5_d0.5" in done.err
