"""Real jobs of a real SLURM: arrays, a requeued job, several processes, a failure."""

import json

import pytest
from cluster.slurm_cluster import submitted, wait_for

from phantomgrad_suite.runs.records import read_record

pytest.importorskip("submitit", reason="submitit is not installed (phantomgrad-suite[cluster])")

FAILED = "runs/table4/**/attempt.json"


def logs(workplace, job):
    return "".join(p.read_text() for p in workplace.path.glob(f"runs/.cluster/{job}_*_log.out"))


def test_table_is_an_array_and_a_requeued_job_resumes(slurm, script, workplace):
    """The first job gets the signal that its time is up; it saves, and is requeued once."""
    jobs = submitted(
        script,
        *("experiment=chains/implicit,chains/upg_k5_d0.5", "seed=0", "trainer.max_epochs=200"),
        *("runtime.checkpoint.every_n_epochs=1000", "runtime.checkpoint.every_minutes=null"),
    )
    (first, second) = jobs.values()
    array, _, index = first.partition("_")
    assert (second, index) == (f"{array}_1", "0")
    (name, *_) = jobs
    folder = workplace.path / "runs" / name.replace(" ", "/")
    wait_for(lambda: "train/loss" in logs(workplace, first))
    slurm.ask("scancel", "--signal=USR2", first)
    wait_for(lambda: slurm.state(first)["JobState"] == "PENDING")
    assert not (folder / "record.json").exists()
    assert json.loads((folder / "attempt.json").read_text())["job"] == first
    slurm.start_soon(first)
    wait_for(lambda: len(list(workplace.path.glob("runs/**/record.json"))) == 2)
    wait_for(lambda: slurm.state(first)["JobState"] == "COMPLETED")
    assert [slurm.state(job)["Restarts"] for job in (first, second)] == ["1", "0"]
    output = logs(workplace, first)
    assert "stopped by SIGUSR2 in epoch" in output
    assert "resuming from" in output
    assert "resuming from" not in logs(workplace, second)
    assert len(read_record(folder / "record.json").curves["train/loss"]) == 200


def test_row_on_two_devices_is_one_job_of_two_processes(slurm, script, workplace):
    """SLURM starts both. Another row fails meanwhile, as its exit code and its log show."""
    short = "trainer.max_epochs=1"
    (failing,) = submitted(script, "experiment=table4/ppi_implicit", short).values()
    both = ("experiment=digits/one_step", "trainer=ddp", "trainer.devices=2")
    (trained,) = submitted(script, *both, short).values()
    wait_for(lambda: slurm.state(failing)["JobState"] == "FAILED")
    assert slurm.state(failing)["ExitCode"] == "1:0"
    (note,) = (json.loads(path.read_text()) for path in workplace.path.glob(FAILED))
    assert "PPI lacks" in note["failed"]
    assert note["failed"] in logs(workplace, failing)
    assert slurm.state(trained)["NumTasks"] == "2"
    wait_for(lambda: slurm.state(trained)["JobState"] == "COMPLETED")
    (path,) = workplace.path.glob("runs/digits/one_step/*/record.json")
    assert read_record(path).result.best > 0.5


def test_row_on_two_nodes_is_one_job_with_one_record(slurm_of_two, script, workplace):
    """Half of each batch is on each; the process of the second one writes nothing."""
    spread = ("trainer=ddp", "trainer.devices=1", "trainer.num_nodes=2", "trainer.max_epochs=1")
    (job,) = submitted(script, "experiment=digits/one_step", *spread).values()
    wait_for(lambda: slurm_of_two.state(job)["JobState"] in {"COMPLETED", "FAILED"})
    ended = slurm_of_two.state(job)
    assert (ended["JobState"], ended["NodeList"]) == ("COMPLETED", "alpha,beta")
    output = [path.read_text() for path in workplace.path.glob("runs/.cluster/*_log.out")]
    assert [text.count("accuracy best") for text in sorted(output, key=len)] == [0, 1]
    (path,) = workplace.path.glob("runs/**/record.json")
    record = read_record(path)
    assert record.result.best > 0.5
    assert "trainer.num_nodes=2" in record.changes
