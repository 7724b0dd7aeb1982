"""The state of a run, read from its folder."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from training import Workplace

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.status import Run, examine, read_log, run_folders

PLACE = ("chains/implicit", "seed0")
RUNS, RECORDS = Path("runs"), Path("results/records")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """An empty run folder, in a new working directory."""
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(RUNS.joinpath(*PLACE))
    folder.path.mkdir(parents=True)
    return folder


def examined() -> Run:
    return examine(*PLACE, RUNS, RECORDS)


def note(run: RunFolder, **changes: Any) -> None:
    content = {"host": platform.node(), "pid": 1, "job": None, "epochs": 50}
    (run.path / "attempt.json").write_text(json.dumps({**content, **changes}))


def silent_for(minutes: float, path: Path) -> None:
    os.utime(path, (0, time.time() - 60 * minutes))


def checkpoint(run: RunFolder, epoch: int) -> None:
    run.checkpoints.mkdir()
    state = {"weight": torch.zeros(3)}
    torch.save({"epoch": epoch, "global_step": 77, "state_dict": state}, run.last_checkpoint)


def log(run: RunFolder, *lines: str, version: int = 0, header: str = "test/f1,epoch,step") -> None:
    path = run.path / "csv" / f"version_{version}" / "metrics.csv"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in (header, *lines)))


def test_missing_published_and_finished_runs(run: RunFolder) -> None:
    assert examined() == Run(*PLACE, "missing")
    published = RECORDS / PLACE[0] / f"{PLACE[1]}.json"
    published.parent.mkdir(parents=True)
    published.write_text("{}")
    assert examined() == Run(*PLACE, "done")
    run.record.write_text("{}")
    note(run, failed="an earlier attempt")
    assert examined() == Run(*PLACE, "done", updated=run.record.stat().st_mtime)


def test_failed_run_has_its_error(run: RunFolder) -> None:
    note(run, failed="CUDA out of memory", host="gpu07", job="812_3")
    found = examined()
    assert (found.state, found.error) == ("failed", "CUDA out of memory")
    assert found.host == "job 812_3 on gpu07"


def test_locked_run_is_running(run: RunFolder) -> None:
    if not Path("/proc/locks").exists():
        pytest.skip("this system lists no locks in /proc/locks")
    note(run)
    checkpoint(run, 11)
    with run.locked() as locked:
        assert locked
        found = examined()
        with run.locked() as again:
            assert not again  # examining the folder has not released the lock
    assert (found.state, found.host) == ("running", platform.node())
    assert found.progress == "epoch 12 of 50, last update 0 s ago"
    assert examined().state == "stopped"


@pytest.mark.parametrize(
    ("every", "minutes", "state"),
    [
        *((10, 59, "running"), (10, 61, "stopped"), (30, 89, "running"), (30, 91, "stopped")),
        ("often", 61, "stopped"),
    ],
)
def test_run_of_another_machine_is_running_until_it_is_silent(
    run: RunFolder, every: Any, minutes: int, state: str
) -> None:
    """Its lock cannot be seen; three checkpoints should have been written meanwhile."""
    note(run, host="gpu07", checkpoint_every_minutes=every)
    silent_for(minutes, run.path / "attempt.json")
    assert examined().state == state
    note(run, host="gpu07", stopped="2026-01-01T00:00:00+00:00")
    assert examined().state == "stopped"  # it noted its end


def test_log_of_a_cluster_job_is_a_sign_of_life(run: RunFolder) -> None:
    note(run, host="gpu07", job="812_3")
    silent_for(90, run.path / "attempt.json")
    job = RUNS / ".cluster" / "812_3_0_log.out"
    job.parent.mkdir()
    job.touch()
    silent_for(5, job)
    assert examined().state == "running"
    assert examined().progress == "no epoch yet, last update 5.0 min ago"


def test_latest_of_logs_and_checkpoint_is_the_epoch(run: RunFolder) -> None:
    note(run)
    checkpoint(run, 20)
    log(run, "1,3,9")
    assert examined().epoch == 21
    log(run, "1,22,9", version=1)
    assert examined().progress.startswith("epoch 23 of 50, ")


def test_unreadable_files_are_no_obstacle(run: RunFolder) -> None:
    (run.path / "attempt.json").write_text("{")
    (run.path / "config_hash").write_text("")
    run.checkpoints.mkdir()
    run.last_checkpoint.write_bytes(b"PK")
    found = examined()
    assert (found.state, found.epoch, found.host) == ("stopped", None, "this machine")
    note(run, epochs="many")
    assert examined().epochs is None


def test_log_by_epoch(run: RunFolder) -> None:
    """Lines of one epoch are merged; only finite numbers count."""
    header = "epoch,step,test/f1,train/loss"
    log(run, "0,9,0.5,", "0,9,,2.0", "1,19,nan,inf", "3,9,word,1.0", header=header)
    assert read_log(run.path) == {
        0: {"test/f1": 0.5, "train/loss": 2.0},
        1: {},
        3: {"train/loss": 1},
    }


def test_later_attempt_replaces_epochs_trained_again(run: RunFolder) -> None:
    """The tenth version comes after the second."""
    log(run, "0.1,0,0", "0.2,1,0", "0.3,2,0", version=2)
    log(run, "0.7,1,0", "0.8,2,0", version=10)
    assert [metrics["test/f1"] for metrics in read_log(run.path).values()] == [0.1, 0.7, 0.8]


def test_incomplete_lines_and_unreadable_logs_are_skipped(run: RunFolder) -> None:
    log(run, "0.5,0,1", "1,0", "1,2,3,4", "1,x,1", "1,1.5,1")
    log(run, version=1)
    (run.path / "csv/version_1/metrics.csv").write_bytes(b"epoch,test/f1\n\xff\xfe,\n")
    assert read_log(run.path) == {0: {"test/f1": 0.5}}
    assert read_log(Path("nowhere")) == {}


def test_state_of_a_real_run(workplace: Workplace) -> None:
    """A failed run is shown as failed until it is started again, and is done at the end."""
    short = ("experiment=chains/implicit", "trainer.max_epochs=2")
    with pytest.raises(UserError, match=r"checkpoint.every_minutes must be a number"):
        workplace.train(*short, "runtime.checkpoint.every_minutes=-1")
    (place,) = run_folders(RUNS)
    found = examine(*place, RUNS, RECORDS)
    assert (found.state, found.error[:32]) == ("failed", "runtime.checkpoint.every_minutes")
    folder = workplace.train(*short)
    assert folder.name == place[1]
    assert examine(*place, RUNS, RECORDS).state == "done"
