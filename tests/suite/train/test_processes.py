"""As many processes as the configuration says, or no run."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from training import Workplace

from phantomgrad_suite.jobs.settings import processes_asked_for
from phantomgrad_suite.runs.errors import UserError


def told_by_slurm(monkeypatch: pytest.MonkeyPatch, tasks: int) -> None:
    """Have this process be the first of a job's."""
    for name in ("PROCID", "LOCALID", "NODEID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NTASKS", str(tasks))
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")  # what Lightning looks at
    monkeypatch.setenv("SLURM_JOB_NAME", "train.sh")


@pytest.mark.parametrize("devices", ["2", "'2'"])
def test_fewer_processes_than_asked_for_are_refused(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, devices: str
) -> None:
    """A batch script without srun: the one process would do the run alone, as if it were two."""
    told_by_slurm(monkeypatch, tasks=1)
    row = ("experiment=digits/one_step", "trainer=ddp", f"trainer.devices={devices}")
    with pytest.raises(UserError, match=r"2 processes, but there is 1: .* srun --ntasks-per-no"):
        workplace.train(*row, "trainer.max_epochs=1")
    assert not list(workplace.path.glob("**/record.json"))


def test_more_processes_than_asked_for_are_refused(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_by_slurm(monkeypatch, tasks=4)
    row = ("experiment=digits/one_step", "trainer=ddp", "trainer.devices=2")
    with pytest.raises(UserError, match=r"2 processes, but there are 4: "):
        workplace.train(*row, "trainer.max_epochs=1")


@pytest.mark.parametrize(
    ("devices", "nodes", "count"),
    [
        *((1, 1, 1), (8, 2, 16), ([0, 3], 1, 2), ("4", 1, 4), ("0,3,5", 1, 3)),
        *(("auto", 1, None), (-1, 2, None), ("-1", 1, None), (None, None, None)),
    ],
)
def test_number_of_processes_that_a_configuration_asks_for(
    devices: int | str | list[int] | None, nodes: int | None, count: int | None
) -> None:
    trainer = {"devices": devices, "num_nodes": nodes}
    assert processes_asked_for(OmegaConf.create({"trainer": trainer})) == count
