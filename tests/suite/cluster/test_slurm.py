"""A table as an array of a real SLURM, whose first job is requeued; on request alone.

PHANTOMGRAD_SLURM=1 python -m pytest tests/suite/cluster/test_slurm.py --basetemp SHARED_FOLDER
"""

import json
import os
import re
import subprocess
import time

import pytest

from phantomgrad_suite.runs.records import read_record

pytestmark = pytest.mark.skipif(
    "PHANTOMGRAD_SLURM" not in os.environ, reason="PHANTOMGRAD_SLURM=1 submits jobs to your SLURM"
)


def ask(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def state(job):
    words = ask("scontrol", "show", "job", job, "--oneliner").split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def wait_for(what, seconds=900):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(1)


def test_table_is_an_array_and_a_requeued_job_resumes(script, workplace):
    """The first job gets the signal that its time is up; it saves, and is requeued once."""
    outcome = script(
        *("experiment=chains/implicit,chains/upg_k5_d0.5", "seed=0", "trainer.max_epochs=200"),
        *("runtime.checkpoint.every_n_epochs=1000", "runtime.checkpoint.every_minutes=null"),
        *("cluster=slurm", "runtime.cluster.mem_gb=1", "runtime.cluster.minutes=10"),
    )
    assert outcome.code == 0, outcome.err
    jobs = {name: job for job, name in re.findall(r"^job (\S+): (.*)$", outcome.out, re.M)}
    (name, *_), (first, second) = jobs, jobs.values()
    assert (first.partition("_")[0], second.partition("_")[2]) == (second.partition("_")[0], "1")
    folder = workplace.path / "runs" / name.replace(" ", "/")

    def output(job):
        logs = workplace.path.glob(f"runs/.cluster/{job}_*_log.out")
        return "".join(path.read_text() for path in logs)

    wait_for(lambda: "train/loss" in output(first))
    ask("scancel", "--signal=USR2", first)
    wait_for(lambda: state(first)["JobState"] == "PENDING")
    assert json.loads((folder / "attempt.json").read_text())["job"] == first
    # Not in two minutes, as SLURM has it, nor within a second ("Job credential revoked").
    ask("scontrol", "update", f"JobId={first}", "StartTime=now+3")
    wait_for(lambda: len(list(workplace.path.glob("runs/**/record.json"))) == 2)
    assert [state(job)["Restarts"] for job in (first, second)] == ["1", "0"]
    assert "stopped by SIGUSR2 in epoch" in output(first)
    assert "resuming from" in output(first)
    assert len(read_record(folder / "record.json").curves["train/loss"]) == 200
