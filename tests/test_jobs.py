"""Who does a job, and who keeps its books."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from phantomgrad.environment import launched_from_outside
from phantomgrad.jobs import do
from phantomgrad.records import StudyRecord
from phantomgrad.runs import Identity, RunFolder

RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def configuration(folder: Path, **trainer: Any) -> DictConfig:
    return OmegaConf.create(
        {
            "seed": 0,
            "dataset": {},
            "trainer": trainer,
            "paths": {"runs": str(folder / "runs"), "records": str(folder / "records")},
            "run": {"row": None, "instance": None, "folder": None},
        }
    )


def work(config: DictConfig, identity: Identity, _: RunFolder) -> tuple[StudyRecord, str]:
    config.done = True
    nothing: dict[str, Any] = {}
    named = (identity.row, identity.instance, "full", [])
    record = StudyRecord(
        *named, nothing, nothing, [], nothing, nothing, nothing, identity.config_hash, "", ""
    )
    return record, "done"


def records(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json"))


@pytest.mark.parametrize("name", RANKS)
def test_process_of_a_distributed_run_follows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does its share while the first process holds the folder, and writes nothing."""
    monkeypatch.setenv(name, "1")
    config = configuration(tmp_path, devices=2)
    with RunFolder(tmp_path / "runs/row/seed0").locked() as held:
        assert held
        assert do(config, "row", [], work) is None
    assert config.done
    assert records(tmp_path) == []


@pytest.mark.parametrize("name", RANKS)
def test_process_that_only_shares_a_table_keeps_its_own_books(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started by `srun -n 4`, each takes the runs that no other is at: no run is lost."""
    monkeypatch.setenv(name, "1")
    config = configuration(tmp_path, devices=1)
    with RunFolder(tmp_path / "runs/row/seed0").locked():
        assert do(config, "row", [], work) is None
    assert "done" not in config
    assert do(config, "row", [], work) is not None
    assert len(records(tmp_path)) == 2  # in the run folder, and among the results


@pytest.mark.parametrize(
    ("environment", "outside"),
    [
        ({}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, False),  # a batch script, without srun
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, True),
        ({"TORCHELASTIC_RUN_ID": "x"}, True),
    ],
)
def test_who_has_started_the_processes(
    environment: dict[str, str], outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched_from_outside() is outside
