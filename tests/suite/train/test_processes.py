"""A run has as many processes as its configuration says, or is refused."""

from __future__ import annotations

import pytest
from training import Workplace

from phantomgrad_suite.runs.errors import UserError


@pytest.mark.parametrize(
    ("devices", "tasks", "message"),
    [
        # A batch script without srun: the only process would do the run alone.
        ("2", 1, r"2 processes, but 1 started: .* srun --ntasks-per-no"),
        ("'2'", 1, r"2 processes, but 1 started: "),
        ("2", 4, r"2 processes, but 4 started: "),
    ],
)
def test_other_number_of_processes_is_refused(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, devices: str, tasks: int, message: str
) -> None:
    """In the first process of a SLURM job."""
    for name in ("PROCID", "LOCALID", "NODEID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NTASKS", str(tasks))
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")  # what Lightning looks at
    monkeypatch.setenv("SLURM_JOB_NAME", "train.sh")
    row = ("experiment=digits/one_step", "trainer=ddp", f"trainer.devices={devices}")
    with pytest.raises(UserError, match=message):
        workplace.train(*row, "trainer.max_epochs=1")
    assert not list(workplace.path.glob("**/record.json"))
