"""Searches over λ and k: ordinary runs, validation data alone, the same after an interruption."""

from __future__ import annotations

import re
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

import phantomgrad.train
from graph_data import REPOSITORY
from phantomgrad.cli import names
from phantomgrad.errors import UserError
from phantomgrad.records import Record, read_record
from phantomgrad.runs import Identity, RunFolder
from phantomgrad.tuning import command
from phantomgrad.tuning.command import JOURNAL
from training import Script, Workplace, composed

ROW = "chains/upg_k5_d0.5"
SHORT = ("tune=lambda", f"experiment={ROW}", "trainer.max_epochs=2", "tune.startup=3")


def trials(folder: Path, row: str = ROW) -> list[tuple[int, dict[str, Any], float]]:
    """Place, settings and value of each finished trial, as Optuna's file has them."""
    from optuna import get_all_study_names, load_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / "runs" / "tune" / row / JOURNAL)))
    (name,) = get_all_study_names(storage)
    found = load_study(study_name=name, storage=storage).trials
    return [(t.user_attrs["position"], t.params, t.values[0]) for t in found]


def records(folder: Path) -> list[Record]:
    return [read_record(path) for path in sorted((folder / "runs" / "tune").rglob("record.json"))]


def count_runs(monkeypatch: pytest.MonkeyPatch, fails: dict[int, BaseException]) -> list[str]:
    """Note the λ of each run that is begun; those in ``fails``, by their number, raise."""
    begun: list[str] = []
    do = phantomgrad.train.run

    def run(config: DictConfig, row: str | None, overrides: list[str]) -> None:
        begun.append(f"{config.gradient.damping}-{config.seed}")
        if len(begun) - 1 in fails:
            raise fails[len(begun) - 1]
        do(config, row, overrides)

    monkeypatch.setattr("phantomgrad.train.run", run)
    return begun


# What a search does ---------------------------------------------------------------------------


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


# What is refused ------------------------------------------------------------------------------


def test_data_without_validation_part_are_refused(script: Script, small_tu: Path) -> None:
    row = ("experiment=table4/cox2_upg_k5_d0.5", f"dataset.root={small_tu}")
    done = script("tune=lambda", *row)
    assert done.code == 1
    assert re.search(r"^tune needs a validation part, and COX2 has none .*stratified", done.err)
    assert len(done.err.splitlines()) == 1
    assert not Path("runs/tune/table4").exists()
    short = ("trainer.max_epochs=1", "tune.trials=1")
    assert script("tune=lambda", *row, "dataset.split=stratified", *short).code == 0


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["tune.objective=test/loss"], r"objective must be of the validation part .*'test/loss'"),
        (["tune.direction=down"], "direction must be minimize or maximize, got 'down'"),
        (["tune.trials=0"], "tune.trials must be at least 1, got 0"),
        (["tune.step=0"], "tune.step must be positive, got 0"),
        (["tune.step=0.07"], r"step must divide the interval of gradient.damping, 0.1 to 1.0, got"),
        (["gradient.damping=0.5"], "nothing to search: sweep a setting, as in gradient.damping="),
        (["experiment=chains/upg_k5_d0.5,digits/upg_k5_d0.5"], "settings of one experiment"),
        (["seed=interval(0,3)"], r"seed=interval\(0,3\) cannot be repeated over: list the values"),
        (["experiment=chains/implicit"], r"^Could not override 'gradient\.damping'"),
        (["gradient.step=1,2"], "there is no setting 'gradient.step'; the nearest are"),
        (["cluster=list"], "waits for its runs: use cluster=local or none, got cluster=list"),
        (["tune=lamda"], "there is no tune 'lamda'; the nearest are lambda"),
        (
            ["tune.objective=validation/perplexity", "tune.trials=1"],
            "must be one of validation/accuracy, validation/loss, got 'validation/perplexity'",
        ),
    ],
)
def test_what_cannot_be_searched_is_said_in_a_line(
    script: Script, overrides: list[str], why: str
) -> None:
    done = script(*SHORT, *overrides)
    assert done.code == 1
    assert re.search(why, done.err)
    assert "Traceback" not in done.err


def test_missing_optuna_is_said(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    done = script(*SHORT)
    assert (done.code, done.err.strip()) == (
        1,
        "tune needs the package optuna: pip install 'phantomgrad[suite,tune]'",
    )


def test_search_that_another_process_is_at_is_left_to_it(
    script: Script, workplace: Workplace
) -> None:
    with RunFolder(workplace.path / "runs" / "tune" / ROW).locked() as mine:
        assert mine
        done = script(*SHORT)
    assert done.code == 1
    assert "another process is at the search in runs/tune/chains/upg_k5_d0.5" in done.err


def test_damaged_study_is_said(script: Script, workplace: Workplace) -> None:
    path = workplace.path / "runs" / "tune" / ROW / JOURNAL
    path.parent.mkdir(parents=True)
    path.write_text("no journal\n{}\n")
    done = script(*SHORT)
    assert done.code == 1
    assert f"{path.relative_to(workplace.path)} is no readable study" in done.err


# The files of configs/tune --------------------------------------------------------------------


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", names("tune"))
def test_file_names_its_own_command_and_a_row(name: str) -> None:
    from hydra.core.hydra_config import HydraConfig

    said = (REPOSITORY / "configs" / "tune" / f"{name}.yaml").read_text()
    assert said.startswith("# @package _global_\n")
    assert f"#   python scripts/train.py tune={name}" in said
    config = composed([f"tune={name}"])
    chosen = HydraConfig.get()
    assert chosen.mode.name == "MULTIRUN"
    assert chosen.sweeper._target_ == "hydra_plugins.phantomgrad_tuner.Tuner"
    assert chosen.sweeper.params["experiment"] in names("experiment")
    assert config.tune.objective.startswith("validation/")


@pytest.mark.usefixtures("workplace")
def test_runs_are_rows_of_their_own() -> None:
    """Named by λ, reduced as the file says, and no change of an experiment by hand."""
    from hydra.core.hydra_config import HydraConfig

    from phantomgrad.jobs import as_dict

    row = "table4/honest/cox2_upg_k5_d0.5"
    own = ("seed=42", "dataset.fold=2", "gradient.damping=0.57")
    config = composed(["tune=lambda_cox2", f"experiment={row}", "tune.trials=30", *own])
    found = Identity.of(as_dict(config), row, list(HydraConfig.get().overrides.task))
    assert (found.row, found.instance) == (f"tune/{row}/upg_k5_d0.57", "seed42-fold2")
    assert found.changes == ()
    assert config.reduced == ["3 of 10 folds", "100 of 200 epochs"]
    assert (config.trainer.max_epochs, config.dataset.split) == (100, "stratified")
