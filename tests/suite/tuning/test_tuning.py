"""Searches over λ and k: ordinary runs, validation data only, the same after an interruption."""

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from training import Script, Workplace
from tuning.conftest import ROW, SHORT, counted, records, trials

import phantomgrad_suite.tuning
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, read_record


def searched(script: Script, *arguments: str) -> list[tuple[int, dict[str, str], str]]:
    """Do a search; return its trials."""
    done = script(*arguments)
    assert done.code == 0, done.out + done.err
    return trials(done.out)


def test_value_of_a_trial_is_the_mean_of_its_runs(script: Script, workplace: Workplace) -> None:
    """λ and k are searched, the paper's λ first; each trial is run from every seed."""
    settings = ("objective=validation/accuracy", "direction=maximize", "trials=3")
    tune = [f"runtime.tune.{setting}" for setting in settings]
    done = script(*SHORT, *tune, "gradient.steps=1,3", "seed=0,1")
    assert done.code == 0, done.err
    found = trials(done.out)
    assert [params["gradient.damping"] for _, params, _ in found] == ["0.5", "0.8", "1.0"]
    by_row = records(workplace.path)
    for _, params, value in found:
        steps, damping = params["gradient.steps"], params["gradient.damping"]
        runs = by_row.pop(f"tune/{ROW}/upg_k{steps}_d{damping}")
        assert [run.config["seed"] for run in runs] == [0, 1]
        assert {run.label["method"] for run in runs} == {f"UPG A({steps}, {damping})"}
        best = [max(run.curves["validation/accuracy"]) for run in runs]
        assert value == f"{statistics.fmean(best):.5g}"
    assert not by_row
    highest = max(found, key=lambda trial: float(trial[2]))[2]
    last = done.out.strip().splitlines()[-1]
    assert last.startswith(f"3 trials, best validation/accuracy {highest} at gradient.damping=")


def test_interrupted_and_continued_search_is_that_of_one_start(script: Script) -> None:
    """It stops after a trial and is killed in the third; no run is repeated."""
    settings = (*(*SHORT, "runtime.tune.first=[]"), *("runtime.tune.startup=1", "seed=0,1"))
    whole = (*settings, "runtime.tune.trials=3")
    expected = searched(script, *whole, "runtime.paths.runs=whole/runs")
    assert len({params["gradient.damping"] for _, params, _ in expected}) == 3
    assert searched(script, *settings, "runtime.tune.trials=1") == expected[:1]
    with counted({3: SystemExit(1)}) as begun:
        done = script(*whole)
    assert (done.code, trials(done.out), len(begun)) == (1, expected[:2], 4)
    with counted() as begun:
        assert searched(script, *whole) == expected
    assert len(begun) == 1


def test_record_of_another_configuration_does_not_count(script, workplace) -> None:
    """The row's file may have changed since."""
    assert script(*SHORT, "runtime.tune.trials=1").code == 0
    (path,) = workplace.path.glob("runs/tune/**/record.json")
    path.write_text(path.read_text().replace(read_record(path).config_hash, "0" * 64))
    done = script(*SHORT, "runtime.tune.trials=1")
    assert done.code == 1
    assert "the first trial has failed" in done.err


def test_failed_trial_is_left_for_the_next_start(script: Script) -> None:
    with counted({1: UserError("the training loss is nan")}):
        done = script(*SHORT, "runtime.tune.trials=3")
    assert done.code == 1
    assert "trial 2 of 3, gradient.damping=0.8: failed, see above; the same command" in done.out
    assert [number for number, *_ in trials(done.out)] == [1, 3]
    with counted() as begun:
        done = script(*SHORT, "runtime.tune.trials=3")
    assert (done.code, begun) == (0, ["0.8-0"])
    assert [number for number, *_ in trials(done.out)] == [1, 2, 3]


def test_no_test_value_is_read(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is the same when records hold nothing of the test data."""

    def read(path: Path) -> Record:
        record = read_record(path)
        curves = {n: c for n, c in record.curves.items() if n.startswith("validation/")}
        return replace(record, result=None, curves=curves)

    expected = searched(script, *SHORT, "runtime.tune.trials=2")
    monkeypatch.setattr(phantomgrad_suite.tuning, "read_record", read)
    assert searched(script, *SHORT, "runtime.tune.trials=2") == expected


def test_runs_of_a_trial_are_launched_together(script: Script, workplace: Workplace) -> None:
    """They run in processes of their own, as those of a table do."""
    done = script(*SHORT, "runtime.tune.trials=1", "cluster=local", "runtime.cluster.jobs=2")
    assert done.code == 0, done.err
    assert "1 run, 2 at a time" in done.out
    assert len(records(workplace.path)) == len(trials(done.out)) == 1
