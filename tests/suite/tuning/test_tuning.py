"""Searches over λ and k: ordinary runs, validation data alone, the same after an interruption."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training import Script, Workplace
from tuning.searches import ROW, SHORT, count_runs, records, trials

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, read_record
from phantomgrad_suite.tuning import command
from phantomgrad_suite.tuning.command import JOURNAL


def test_trials_are_runs_and_their_value_is_the_mean_of_validation(
    script: Script, workplace: Workplace
) -> None:
    """Those of the paper's λ come first; each is run from every seed, and keeps a record."""
    done = script(*SHORT, "tune.trials=4", "seed=0,1")
    assert done.code == 0, done.err
    found = trials(workplace.path)
    assert [params["gradient.damping"] for _, params, _ in found[:3]] == [0.5, 0.8, 1.0]
    for position, params, value in found:
        runs = [r for r in records(workplace.path) if r.row == row_of(params)]
        assert [r.config["seed"] for r in runs] == [0, 1]
        assert value == statistics.fmean(min(r.curves["validation/loss"]) for r in runs)
        assert f"trial {position + 1} of 4, gradient.damping={damping(params)}: " in done.out
    best = min(found, key=lambda trial: trial[2])
    assert done.out.strip().splitlines()[-1] == (
        f"4 trials, best validation/loss {best[2]:.5g} at gradient.damping={damping(best[1])}"
    )


def row_of(params: dict[str, Any]) -> str:
    return f"tune/{ROW}/upg_k{params.get('gradient.steps', 5)}_d{damping(params)}"


def damping(params: dict[str, Any]) -> float:
    return round(params["gradient.damping"], 10)


def test_whatever_else_is_swept_is_searched(script: Script, workplace: Workplace) -> None:
    """Here k, and the accuracy is to be large."""
    settings = ("tune.objective=validation/accuracy", "tune.direction=maximize", "tune.trials=3")
    assert script(*SHORT, *settings, "gradient.steps=1,3").code == 0
    found = trials(workplace.path)
    assert {params["gradient.steps"] for _, params, _ in found} <= {"1", "3"}
    by_row = {r.row: r for r in records(workplace.path)}
    for _, params, value in found:
        record = by_row[row_of(params)]
        assert value == max(record.curves["validation/accuracy"])
        assert record.label["method"] == f"UPG A({params['gradient.steps']}, {damping(params)})"


def test_killed_search_goes_on_as_if_it_had_not_been(
    script: Script, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the second run of its third trial: only that run, and what is left, is begun."""
    whole = (*SHORT, "tune.trials=4", "tune.first=[]", "tune.startup=1", "seed=0,1")
    assert script(*whole, "paths.runs=whole/runs").code == 0
    expected = trials(workplace.path / "whole")
    assert len({damping(params) for _, params, _ in expected}) == 4
    with monkeypatch.context() as patch:
        count_runs(patch, {5: SystemExit(1)})
        assert script(*whole).code == 1
    assert trials(workplace.path) == expected[:2]
    begun = count_runs(monkeypatch, {})
    assert script(*whole).code == 0
    assert trials(workplace.path) == expected
    assert len(begun) == 4
    (workplace.path / "runs" / "tune" / ROW / JOURNAL).unlink()
    again = script(*whole)
    assert again.out.count("finished, skipped") == 8
    assert trials(workplace.path) == expected


def test_more_trials_go_on_from_those_that_are_done(script: Script, workplace: Workplace) -> None:
    settings = (*SHORT, "tune.first=[]", "tune.startup=1")
    assert script(*settings, "tune.trials=3", "paths.runs=whole/runs").code == 0
    for number in (1, 3):
        assert script(*settings, f"tune.trials={number}").code == 0
    assert trials(workplace.path) == trials(workplace.path / "whole")


def test_record_of_another_configuration_is_not_taken(script: Script, workplace: Workplace) -> None:
    """That of the row as it was before its file was changed."""
    assert script(*SHORT, "tune.trials=1").code == 0
    (workplace.path / "runs" / "tune" / ROW / JOURNAL).unlink()
    (path,) = workplace.path.glob("runs/tune/**/record.json")
    record = read_record(path)
    path.write_text(path.read_text().replace(record.config_hash, "0" * 64))
    done = script(*SHORT, "tune.trials=1")
    assert done.code == 1
    assert "the first trial has failed" in done.err


def test_failed_trial_is_left_for_the_next_time(
    script: Script, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        count_runs(patch, {1: UserError("the training loss is nan")})
        done = script(*SHORT, "tune.trials=3")
    assert done.code == 1
    assert "trial 2 of 3, gradient.damping=0.8: failed, see above; the same command" in done.out
    assert [position for position, *_ in trials(workplace.path)] == [0, 2]
    begun = count_runs(monkeypatch, {})
    assert script(*SHORT, "tune.trials=3").code == 0
    assert begun == ["0.8-0"]
    assert [position for position, *_ in trials(workplace.path)] == [0, 2, 1]


def test_search_whose_first_trial_fails_ends(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nothing is known, and the second one is likely to fail by the same."""
    begun = count_runs(monkeypatch, dict.fromkeys(range(9), UserError("no data")))
    done = script(*SHORT, "tune.trials=3")
    assert (done.code, len(begun)) == (1, 1)
    assert "trial 1 of 3, gradient.damping=0.5: the first trial has failed, see above" in done.err


class Unread:
    """Something that nobody may look at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the result of the test was read: {name}")


class ValidationOnly(dict[str, list[float]]):
    """Curves of which those on test data must not be asked for."""

    def __getitem__(self, name: str) -> list[float]:
        assert not name.startswith("test/")
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        assert not name.startswith("test/")
        return super().get(name, default)

    def items(self) -> Any:
        raise AssertionError("all curves were read")

    values = items


def test_no_test_value_is_read(
    script: Script, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> Record:
        record = read_record(path)
        return replace(record, result=Unread(), curves=ValidationOnly(record.curves))  # type: ignore[arg-type]

    looked: list[Path] = []
    monkeypatch.setattr(command, "read_record", lambda path: looked.append(path) or read(path))
    assert script(*SHORT, "tune.trials=2").code == 0
    assert len(looked) == len(trials(workplace.path)) == 2
    spied = read(looked[0])
    with pytest.raises(AssertionError):
        _ = spied.result.best
    for look in (spied.curves.__getitem__, spied.curves.get):
        with pytest.raises(AssertionError):
            look("test/accuracy")


def test_runs_of_a_trial_are_launched_together(script: Script, workplace: Workplace) -> None:
    """In processes of their own, as those of a table."""
    done = script(*SHORT, "tune.trials=1", "cluster=local", "cluster.jobs=2")
    assert done.code == 0, done.err
    assert "1 runs, 2 at a time" in done.out
    assert len(records(workplace.path)) == len(trials(workplace.path)) == 1
