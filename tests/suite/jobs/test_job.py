"""Jobs of several processes: which one executes the work and writes the record."""

import errno
import os
from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from runs.test_records import STUDY

from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.jobs.job import open_job
from phantomgrad_suite.jobs.processes import is_first_process
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import identify

SRUN = {
    **{"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"},
    "SLURM_JOB_NAME": "train.sh",
}
# The environment of a second process under torchrun, Lightning (same or other node) and srun.
SECOND = ({"RANK": "1"}, {"LOCAL_RANK": "1"}, {"NODE_RANK": "1"}, SRUN)
FIRST = {**SRUN, "SLURM_PROCID": "0"}
NAMES = ("RANK", "LOCAL_RANK", "NODE_RANK", "TORCHELASTIC_RUN_ID", *SRUN)


def put(environment, monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def configuration(folder, **trainer):
    return OmegaConf.create(
        {
            "seed": 0,
            "dataset": {},
            "trainer": trainer,
            "label": {"row": "row"},
            "runtime": {
                "paths": {"runs": str(folder / "runs"), "records": str(folder / "records")},
                "run": {"row": None, "instance": None, "folder": None},
            },
        }
    )


@pytest.fixture(autouse=True)
def _unchanged_row(monkeypatch):
    """The configuration is the row's own; Hydra has composed nothing."""

    def identity_of(config):
        return identify(as_dict(config), as_dict(config))

    monkeypatch.setattr("phantomgrad_suite.jobs.job.identity_of", identity_of)


def execute(config):
    """Execute a job that measures nothing; return whether it was pending."""
    with open_job(config) as job:
        if job.pending:
            of = {name: getattr(job.identity, name) for name in ("row", "instance", "config_hash")}
            job.finish(replace(STUDY, protocol="full", changes=[], **of))
    return job.pending


@pytest.mark.parametrize("launcher", SECOND, ids=lambda variables: next(iter(variables)))
def test_process_of_a_distributed_run_follows(launcher, tmp_path, monkeypatch):
    """It takes part while the first process holds the folder, and writes nothing."""
    put(launcher, monkeypatch)
    config = configuration(tmp_path, devices=2)
    with RunFolder(tmp_path / "runs/row/seed0").locked() as held:
        assert held
        assert execute(config)
    assert not [*tmp_path.rglob("record.json"), *tmp_path.rglob("*.jsonl")]


@pytest.mark.parametrize("launcher", [{"RANK": "0", "LOCAL_RANK": "0"}, FIRST, {}])
def test_first_process_of_a_second_launch_ends_the_others(launcher, tmp_path, monkeypatch, caplog):
    """They would wait for it: it fails, and torchrun or srun stops them. Alone it skips the run."""
    put(launcher, monkeypatch)
    caplog.set_level("INFO")
    config = configuration(tmp_path, devices=2)
    with RunFolder(tmp_path / "runs/row/seed0").locked():
        if launcher:
            with pytest.raises(SystemExit, match="row seed0: another launch executes this run"):
                execute(config)
        else:
            assert not execute(config)
            assert caplog.messages == ["row seed0: skipped, another process executes it"]


@pytest.mark.parametrize("name", ["runs", "records"])
@pytest.mark.parametrize("path", [None, "", "a_file"])
def test_folder_that_cannot_be_written_is_refused_before_the_work(name, path, tmp_path):
    (tmp_path / "a_file").touch()
    config = configuration(tmp_path)
    config.runtime.paths[name] = str(tmp_path / path) if path else path
    expected = rf"paths\.{name} must be a folder|cannot be written"
    with pytest.raises(UserError, match=expected), open_job(config):
        pytest.fail("the work has begun")


def test_full_disk_in_the_middle_is_named(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # without a name, as `write` does

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"records/row\.jsonl: .*make room"):
        execute(configuration(tmp_path))


SHELL = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_NAME": "bash"}


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({**SRUN, "RANK": "0"}, True),  # torchrun, in a job
        ({**SHELL, "LOCAL_RANK": "1"}, False),  # what Lightning has started in such a shell
    ],
)
def test_first_process_is_the_one_that_lightning_counts_from(environment, first, monkeypatch):
    put(environment, monkeypatch)
    assert is_first_process() is first
