"""A real job of a real SLURM on two nodes, which know each other by name."""

from __future__ import annotations

import pytest
from slurm_cluster import Slurm, submitted, wait_for
from training import Script, Workplace

from phantomgrad_suite.runs.records import read_record

pytest.importorskip("submitit", reason="submitit is not installed (phantomgrad[cluster])")


def test_row_on_two_nodes_is_one_job_with_one_record(
    slurm_of_two: Slurm, script: Script, workplace: Workplace
) -> None:
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
