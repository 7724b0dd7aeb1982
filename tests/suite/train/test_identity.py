"""Which run is which: skipped, kept apart from others, left to another process."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest
from train.chains import CHAINS, ROW
from training import Workplace, composed

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import read_record


def test_finished_run_is_skipped(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = workplace.train(*CHAINS)
    before = (folder / "record.json").stat().st_mtime_ns
    assert workplace.train(*CHAINS) == folder
    assert (folder / "record.json").stat().st_mtime_ns == before
    assert "finished, skipped" in caplog.messages[-1]


def test_changed_configurations_do_not_collide(workplace: Workplace) -> None:
    changes: list[tuple[str, ...]] = [(), ("optimizer.lr=0.02",), ("seed=1",), ("gradient=npg",)]
    folders = {workplace.train(*CHAINS, *change) for change in changes}
    assert len(folders) == len(changes)
    assert all((folder / "record.json").exists() for folder in folders)


def identity(*overrides: str) -> Identity:
    return Identity.of(as_dict(composed(list(overrides))), "row", list(overrides))


def test_circumstances_do_not_change_the_identity(workplace: Workplace) -> None:
    plain = identity(ROW)
    circumstances = ("paths.runs=/tmp", "logger=wandb", "trainer.accelerator=cpu", "project=x")
    assert identity(ROW, *circumstances) == plain
    assert plain.instance == "seed0"
    other_seed = identity(ROW, "seed=5")
    assert (other_seed.instance, other_seed.config_hash) == ("seed5", plain.config_hash)


@pytest.mark.parametrize("override", ["trainer.devices=2", "reduced=[x]", "label.method=x"])
def test_what_tells_of_another_experiment_is_no_circumstance(
    workplace: Workplace, override: str
) -> None:
    """More devices are a larger batch: such a run has a folder of its own and is not published."""
    other = identity(ROW, override)
    assert other.changes == (override,)
    assert other.instance != identity(ROW).instance


def test_fold_is_part_of_the_instance_alone(workplace: Workplace) -> None:
    first, second = (
        identity("experiment=table4/cox2_implicit", f"dataset.fold={k}") for k in (0, 3)
    )
    assert (first.instance, second.instance) == ("seed42-fold0", "seed42-fold3")
    assert first.config_hash == second.config_hash


def test_each_fold_has_its_own_seed(
    workplace: Workplace, small_tu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def seed_everything(seed: int, **_: object) -> None:
        seeds.append(seed)

    monkeypatch.setattr("phantomgrad_suite.train.lightning.seed_everything", seed_everything)
    here = ("experiment=table4/cox2_implicit", f"dataset.root={small_tu}", "trainer.max_epochs=1")
    for fold in (0, 3):
        workplace.train(*here, f"dataset.fold={fold}")
    assert seeds == [42, 45]


def test_run_without_a_row_is_a_custom_one(workplace: Workplace) -> None:
    folder = workplace.train("trainer.max_epochs=2", "gradient=one_step")
    record = read_record(folder / "record.json")
    assert record.row == "custom"
    assert record.instance == f"seed0-{record.config_hash[:8]}"
    assert not (workplace.path / "results").exists()


def test_second_process_leaves_a_run_to_the_first(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = workplace.path / "runs" / "chains/upg_k5_d0.5" / identity(*CHAINS).instance
    with RunFolder(folder).locked() as mine:
        assert mine
        workplace.train(*CHAINS)
        assert "another process is at it" in caplog.messages[-1]
        assert [path.name for path in folder.iterdir()] == [".lock"]
    workplace.train(*CHAINS)
    assert (folder / "record.json").exists()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_file_system_without_locks_is_said(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(UserError, match=r"^runs/.* file system .* no locks .* another paths.runs"):
        workplace.train(*CHAINS)
    assert not list(workplace.path.glob("**/record.json"))


def test_finished_run_of_another_configuration_is_kept(
    workplace: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The row's file was changed since: same folder, other experiment."""
    folder = workplace.train(ROW, "trainer.max_epochs=2")
    record = json.loads((folder / "record.json").read_text())
    record["config_hash"] = "0" * 64
    (folder / "record.json").write_text(json.dumps(record))
    before = (folder / "record.json").read_bytes()
    with pytest.raises(UserError, match=r"finished run of another configuration .* move it away"):
        workplace.train(ROW, "trainer.max_epochs=2")
    assert (folder / "record.json").read_bytes() == before
