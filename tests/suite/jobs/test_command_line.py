"""Correct command lines pass; mistakes are reported in one line, before anything runs."""

from __future__ import annotations

import pytest

from phantomgrad_suite.jobs.command_line import check_overrides
from phantomgrad_suite.jobs.compose import names
from phantomgrad_suite.runs.errors import UserError


@pytest.mark.parametrize(
    "line",
    [
        "",
        "experiment=chains/implicit seed=3",
        "experiment='chains/implicit'",
        "experiment=table4/cox2_implicit dataset.fold=3 dataset.split=stratified",
        "gradient=npg gradient.steps=9 trainer.max_epochs=20",
        "solver=broyden solver@adjoint=anderson +adjoint.memory=4",
        "~runtime.callbacks.spectrum +trainer.fast_dev_run=true",
        "table=table4",
        # One fold of every row: the fold is a setting of the rows, not of the root.
        "table=table4 dataset.fold=0 runtime.dataset.root=elsewhere",
        "table=table4 experiment=table4/cox2_implicit dataset.fold=0,1",
        "table=chains dataset.length=12",
        "table=table1 cluster=slurm runtime.cluster.partition=gpu runtime.cluster.minutes=60",
        "table=table4 cluster=local runtime.cluster.jobs=4",
        # Sweeps, launched by the table or by -m.
        "experiment=table4/cox2_implicit,table4/proteins_implicit dataset.fold=range(3)",
        "-m experiment=anything/at_all",
        "--help",
    ],
)
def test_correct_command_lines_pass(line: str) -> None:
    check_overrides(line.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trainer.max_epoch=3", r"there is no setting 'trainer.max_epoch'; .* trainer.max_epochs"),
        ("seeds=3", r"there is no setting 'seeds'; the nearest are seed"),
        ("experiment=chains/implict", r"no experiment 'chains/implict'; .* chains/implicit"),
        ("experiment=chains/implict,chains/npg_k5_d0.5", r"no experiment 'chains/implict'"),
        (
            "table=tabel4",
            r"no table 'tabel4'; the nearest are table4, .* \(all of them: configs/table/",
        ),
        ("table=chains cluster=slrm", r"no cluster 'slrm'; the nearest are slurm"),
        (
            "table=chains cluster=slurm runtime.cluster.part=gpu",
            r"no setting 'runtime.cluster.part'; .*partition",
        ),
        ("solver@adjoint=broydn", r"no solver 'broydn'; the nearest are broyden"),
        ("table=chains dataset.lenght=12", r"no setting 'dataset.lenght'; .* dataset.length"),
        ("table=chains trainer.max_epoch=3,4", r"no setting 'trainer.max_epoch'"),
        (
            "zzzzz=3",
            r"no setting 'zzzzz'; there is none like it \(all of them: configs/train.yaml\)",
        ),
        ("seed", r"cannot read the overrides: "),
        ("label.method=[1", r"cannot read the overrides: "),
        ("experiment=null", "group override must be a string"),
    ],
)
def test_mistakes_are_reported_in_one_line(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        check_overrides(line.split())
    assert "\n" not in str(error.value)


def test_new_entry_of_a_mapping_needs_a_plus() -> None:
    line = "study=throughput/language_cpu setting.batch_sizes={wikitext/postln_implicit:2}"
    with pytest.raises(UserError, match=r"setting.batch_sizes has no such entry yet: a plus adds"):
        check_overrides(line.split(), root="study")
    check_overrides(line.replace("setting", "+setting").split(), root="study")


def test_other_roots_are_checked_too() -> None:
    with pytest.raises(UserError, match=r"there is no setting 'bogus'; .* configs/bench.yaml\)"):
        check_overrides(["bogus=3"], root="bench")


@pytest.mark.parametrize(
    ("root", "line", "key"),
    [("study", "table=table4", "table"), ("train", "suite=default seeds=3", "suite")],
)
def test_group_of_another_root_is_reported(root: str, line: str, key: str) -> None:
    message = rf"there is no setting '{key}'; .*configs/{root}\.yaml"
    with pytest.raises(UserError, match=message) as error:
        check_overrides(line.split(), root)
    assert "\n" not in str(error.value)


def test_names_are_the_paths_of_nested_files() -> None:
    assert "chains/implicit" in names("experiment")
    assert "table4/honest/cox2_implicit" in names("experiment")
    assert names("nothing") == []
