"""Searches over λ and k: ordinary runs, validation data only, the same after an interruption."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training import Script, Workplace
from tuning.conftest import ROW, SHORT, counted, records, trials

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, read_record
from phantomgrad_suite.tuning import command


def row_of(params: dict[str, str]) -> str:
    return f"tune/{ROW}/upg_k{params.get('gradient.steps', 5)}_d{params['gradient.damping']}"


def test_value_of_a_trial_is_the_mean_of_its_runs(script: Script, workplace: Workplace) -> None:
    """The paper's λ come first; each trial is run from every seed and keeps its records."""
    done = script(*SHORT, "tune.trials=4", "seed=0,1")
    assert done.code == 0, done.err
    found = trials(done.out)
    assert [params["gradient.damping"] for _, params, _ in found[:3]] == ["0.5", "0.8", "1.0"]
    by_row = records(workplace.path)
    for _, params, value in found:
        runs = by_row.pop(row_of(params))
        assert [run.config["seed"] for run in runs] == [0, 1]
        losses = [min(run.curves["validation/loss"]) for run in runs]
        assert value == f"{statistics.fmean(losses):.5g}"
    assert not by_row
    _, params, value = min(found, key=lambda trial: float(trial[2]))
    last = (
        f"4 trials, best validation/loss {value} at gradient.damping={params['gradient.damping']}"
    )
    assert done.out.strip().splitlines()[-1] == last


def test_other_sweeps_are_searched_too(script: Script, workplace: Workplace) -> None:
    """Here k, with an accuracy to maximize."""
    settings = ("tune.objective=validation/accuracy", "tune.direction=maximize", "tune.trials=3")
    found = trials(script(*SHORT, *settings, "gradient.steps=1,3").out)
    by_row = records(workplace.path)
    assert len(found) == len(by_row) == 3
    for _, params, value in found:
        assert params["gradient.steps"] in ("1", "3")
        (run,) = by_row[row_of(params)]
        assert value == f"{max(run.curves['validation/accuracy']):.5g}"
        method = f"UPG A({params['gradient.steps']}, {params['gradient.damping']})"
        assert run.label["method"] == method


def test_killed_search_goes_on_as_if_it_had_not_been(script: Script) -> None:
    """Killed in the second run of its third trial: only that run and later ones are begun."""
    whole = (*SHORT, "tune.trials=4", "tune.first=[]", "tune.startup=1", "seed=0,1")
    expected = trials(script(*whole, "paths.runs=whole/runs").out)
    assert len({params["gradient.damping"] for _, params, _ in expected}) == 4
    with counted({5: SystemExit(1)}):
        done = script(*whole)
    assert (done.code, trials(done.out)) == (1, expected[:2])
    with counted() as begun:
        done = script(*whole)
    assert (done.code, trials(done.out), len(begun)) == (0, expected, 3)


def test_more_trials_continue_a_finished_search(script: Script) -> None:
    settings = (*SHORT, "tune.first=[]", "tune.startup=1")
    expected = trials(script(*settings, "tune.trials=3", "paths.runs=whole/runs").out)
    assert trials(script(*settings, "tune.trials=1").out) == expected[:1]
    with counted() as begun:
        assert trials(script(*settings, "tune.trials=3").out) == expected
    assert len(begun) == 2


def test_record_of_another_configuration_does_not_count(
    script: Script, workplace: Workplace
) -> None:
    """The row's file may have changed since."""
    assert script(*SHORT, "tune.trials=1").code == 0
    (path,) = workplace.path.glob("runs/tune/**/record.json")
    path.write_text(path.read_text().replace(read_record(path).config_hash, "0" * 64))
    done = script(*SHORT, "tune.trials=1")
    assert done.code == 1
    assert "the first trial has failed" in done.err


def test_failed_trial_is_left_for_the_next_start(script: Script) -> None:
    with counted({1: UserError("the training loss is nan")}):
        done = script(*SHORT, "tune.trials=3")
    assert done.code == 1
    assert "trial 2 of 3, gradient.damping=0.8: failed, see above; the same command" in done.out
    assert [number for number, *_ in trials(done.out)] == [1, 3]
    with counted() as begun:
        done = script(*SHORT, "tune.trials=3")
    assert (done.code, begun) == (0, ["0.8-0"])
    assert [number for number, *_ in trials(done.out)] == [1, 2, 3]


def test_search_ends_if_its_first_trial_fails(script: Script) -> None:
    """Nothing is known then, and the second trial would probably fail in the same way."""
    with counted(dict.fromkeys(range(9), UserError("no data"))) as begun:
        done = script(*SHORT, "tune.trials=3")
    assert (done.code, len(begun)) == (1, 1)
    assert "trial 1 of 3, gradient.damping=0.5: the first trial has failed, see above" in done.err


class Unread:
    """An object that must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the test result was read: {name}")


class ValidationOnly(dict[str, list[float]]):
    """Curves of which those on test data must not be read."""

    def get(self, name: str, default: Any = None) -> Any:
        assert not name.startswith("test/")
        return super().get(name, default)

    def refuse(self, *_: Any) -> Any:
        raise AssertionError("all curves were read")

    __getitem__ = items = values = refuse


def test_no_test_value_is_read(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> Record:
        record = read_record(path)
        return replace(record, result=Unread(), curves=ValidationOnly(record.curves))  # type: ignore[arg-type]

    paths: list[Path] = []
    monkeypatch.setattr(command, "read_record", lambda path: paths.append(path) or read(path))
    assert len(trials(script(*SHORT, "tune.trials=2").out)) == len(set(paths)) == 2
    with pytest.raises(AssertionError):
        _ = read(paths[0]).result.best
    with pytest.raises(AssertionError):
        read(paths[0]).curves.get("test/accuracy")


def test_runs_of_a_trial_are_launched_together(script: Script, workplace: Workplace) -> None:
    """In processes of their own, as those of a table."""
    done = script(*SHORT, "tune.trials=1", "cluster=local", "cluster.jobs=2")
    assert done.code == 0, done.err
    assert "1 runs, 2 at a time" in done.out
    assert len(records(workplace.path)) == len(trials(done.out)) == 1
