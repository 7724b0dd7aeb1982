"""Several runs at once on this machine, each on GPUs of its own."""

import json
import multiprocessing
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest
from cluster.commands import ROWS, SHORT, commands, settings

from phantomgrad_suite.cluster.local import run_all
from phantomgrad_suite.runs.errors import UserError

# Locks its GPU while it runs; ends with the given exit code.
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
def stand_in(workplace, monkeypatch):
    """A script that imports nothing."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = workplace.path / "stand_in.py"
    path.write_text(STAND_IN)
    return path


@pytest.fixture
def contexts(monkeypatch):
    """How processes would be started; all are forked, as a new interpreter takes four seconds."""
    asked, fork = list[str](), multiprocessing.get_context("forkserver")
    monkeypatch.setattr(multiprocessing, "get_context", lambda name: asked.append(name) or fork)
    return asked


@pytest.mark.parametrize(
    ("visible", "runs", "devices", "expected"),
    [
        ("4,GPU-7", 4, 1, {"4", "GPU-7"}),  # without a number of jobs, as many as GPUs
        ("0,1,2,3,4", 2, 2, {"0,1", "2,3"}),
    ],
)
def test_each_run_has_its_own_gpus(
    stand_in, contexts, monkeypatch, capsys, visible, runs, devices, expected
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    run_all(commands(*[0] * runs, gpu=True, devices=devices), settings("local"), stand_in)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"{runs} runs, 2 at a time"
    found = [line.partition("] ")[2].split() for line in lines]
    assert {words[0] for words in found} == {f"run{i}" for i in range(runs)}
    assert {words[2] for words in found} == expected
    assert set(contexts) == {"spawn"}  # CUDA does not survive a fork


def test_rows_that_need_different_numbers_of_gpus_share_none(
    stand_in, contexts, monkeypatch, capsys
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    two, one = commands(0, 0, gpu=True, devices=2)
    run_all([two, replace(one, devices=1)], settings("local"), stand_in)
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.partition("] ")[2].split()[2] for line in lines} == {"0,1", "2"}


@pytest.mark.parametrize(
    ("jobs", "devices", "message"),
    [
        (None, 2, r"needs trainer.devices=2 GPUs, this machine has 1"),
        *((jobs, 1, r"cluster.jobs must be a positive integer") for jobs in (0, "two", True)),
    ],
)
def test_settings_out_of_range_are_refused(stand_in, monkeypatch, jobs, devices, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match=message):
        run_all(commands(0, gpu=True, devices=devices), settings("local", jobs=jobs), stand_in)


def test_more_runs_of_several_gpus_than_there_are_gpus_are_refused(stand_in, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    both = commands(0, 0, gpu=True, devices=2)
    with pytest.raises(UserError, match=r"jobs=2 runs of 2 GPUs need 4, this machine has 3"):
        run_all(both, settings("local", jobs=2), stand_in)


def test_rows_on_several_nodes_are_refused(stand_in):
    with pytest.raises(
        UserError, match=r"has one node, a row has trainer.num_nodes=2: use cluster=slurm"
    ):
        run_all(commands(0, nodes=2), settings("local"), stand_in)


def test_failed_run_is_reported_and_stops_no_other(stand_in, contexts, monkeypatch, capsys):
    """The exit code and the last line are reported; the rest of the output is in the run's log."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UserError, match=r"1 of 3 runs failed: see their log.txt"):
        run_all(commands(0, 3, 0), settings("local", jobs=1, threads=3), stand_in)
    printed = re.sub(r"about \d+ s", "about N s", capsys.readouterr().out)
    assert printed.splitlines()[1:] == [
        "[1/3, about N s left] run0 on None with 3",
        "[2/3, about N s left] row seed1: failed (exit code 3): run1 on None with 3",
        "[3/3] run2 on None with 3",
    ]
    assert "more of it" in Path("runs/row/seed1/log.txt").read_text()
    assert contexts == ["forkserver"] * 3


def test_table_on_this_machine(script, workplace):
    """One row is trained; the other one fails with a message."""
    outcome = script(ROWS, *SHORT, "cluster=local", "runtime.cluster.jobs=2")
    assert outcome.code == 1
    (record,) = workplace.path.glob("runs/**/record.json")
    assert record.parents[1].name == "upg_k5_d0.5"
    assert "failed (exit code 1): PPI lacks" in outcome.out
    assert outcome.err == "1 of 2 runs failed: see their log.txt\n"
    (attempt,) = workplace.path.glob("runs/**/attempt.json")
    assert "PPI lacks" in json.loads(attempt.read_text())["failed"]


def test_stopped_launcher_stops_its_runs(script, workplace):
    """A run saves first, and no process remains; one that waits is not begun."""
    ended, runs = Event(), workplace.path / "runs"

    def logs():
        return [path.read_text(errors="replace") for path in runs.glob("**/log.txt")]

    def stop_when_a_run_trains():
        while not any("train/loss" in each for each in logs()):
            if ended.wait(0.02):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = Thread(target=stop_when_a_run_trains, daemon=True)
    stopper.start()
    rows = ("experiment=chains/implicit,chains/upg_k5_d0.5", "trainer.max_epochs=9999")
    try:
        outcome = script(*rows, "cluster=local", "runtime.cluster.jobs=1")
    finally:  # it must not stop these tests
        ended.set()
        stopper.join()
    assert outcome.code == 128 + signal.SIGTERM, outcome.err
    (path,), (_,) = (runs.glob(f"**/{name}") for name in ("attempt.json", "last.ckpt"))
    attempt = json.loads(path.read_text())
    assert "stopped" in attempt
    with pytest.raises(ProcessLookupError):
        os.kill(attempt["pid"], 0)
