"""A table on this machine: several runs at once, each on GPUs of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cluster.commands import ROWS, SHORT, commands, settings
from training import Script, Workplace

from phantomgrad_suite.cluster.local import run_all
from phantomgrad_suite.runs.errors import UserError

# Takes the GPU it was given for itself while it runs; ends with the exit code it was given.
STAND_IN = """
import fcntl, os, sys, time
gpu, threads = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["OMP_NUM_THREADS"]
with open(f"gpu{gpu}", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    time.sleep(0.3)
print("a bar\\rmore of it")
print(f"{sys.argv[1]} on {gpu} with {threads}\\n")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def stand_in(workplace: Workplace) -> Path:
    path = workplace.path / "stand_in.py"
    path.write_text(STAND_IN)
    return path


def test_each_worker_has_its_own_gpu(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run meets another one on its GPU; without a number, there are as many as GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7")
    run_all(commands(0, 0, 0, 0, gpu=True), settings("local", threads=3), stand_in)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "4 runs, 2 at a time"
    assert {line.split(" ", 1)[0] for line in said[1:]} == {"run0", "run1", "run2", "run3"}
    assert {line.split(" ", 1)[1] for line in said[1:]} == {"on 4 with 3", "on GPU-7 with 3"}


def test_row_on_several_gpus_has_them_for_itself(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    run_all(commands(0, 0, gpu=True, devices=2), settings("local"), stand_in)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        *("2 runs, 2 at a time", "run0 on 0,1 with 1", "run1 on 2,3 with 1")
    ]


def test_more_gpus_than_there_are_is_refused(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match=r"needs trainer.devices=2 GPUs, this machine has 1"):
        run_all(commands(0, gpu=True, devices=2), settings("local"), stand_in)


def test_without_a_number_there_are_as_many_as_cores(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of this process, where the system tells; macOS does not."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    run_all(commands(0), settings("local"), stand_in)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    run_all(commands(0), settings("local"), stand_in)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "at a time" in line] == [
        *("1 runs, 3 at a time", "1 runs, 6 at a time")
    ]


@pytest.mark.parametrize("jobs", [0, "two", True])
def test_number_of_jobs_is_a_number(stand_in: Path, jobs: Any) -> None:
    with pytest.raises(UserError, match=r"cluster.jobs must be a positive integer"):
        run_all(commands(0), settings("local", jobs=jobs), stand_in)


def test_failed_run_is_told_and_stops_no_other(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code and last line are said; what a run has said before is in its log."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UserError, match=r"1 of 3 runs have failed: see their log.txt"):
        run_all(commands(0, 3, 0), settings("local", jobs=1), stand_in)
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == [
        "run0 on None with 1",
        "row seed1: failed (exit code 3): run1 on None with 1",
        "run2 on None with 1",
    ]
    assert "more of it" in Path("runs/row/seed1/log.txt").read_text()


def test_table_on_this_machine(script: Script, workplace: Workplace) -> None:
    """The real thing: one row is trained, the other one fails, and says why."""
    outcome = script(ROWS, *SHORT, "cluster=local", "cluster.jobs=2")
    assert outcome.code == 1
    (record,) = workplace.path.glob("runs/**/record.json")
    assert record.parents[1].name == "upg_k5_d0.5"
    assert "failed (exit code 1): COX2 is not in" in outcome.out
    assert outcome.err == "1 of 2 runs have failed: see their log.txt\n"
    (note,) = workplace.path.glob("runs/**/attempt.json")
    assert "COX2 is not in" in json.loads(note.read_text())["failed"]
