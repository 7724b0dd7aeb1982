"""Tables as commands: listed, several at once on this machine, or as jobs that submitit starts."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException
from omegaconf import DictConfig, OmegaConf

from graph_data import REPOSITORY
from phantomgrad.cluster import Command, slurm
from phantomgrad.cluster.environment import slurm_environment
from phantomgrad.cluster.local import run_all
from phantomgrad.cluster.slurm import Job, submit
from phantomgrad.errors import UserError
from phantomgrad.jobs import as_dict
from phantomgrad.runs import Identity, hash_config
from training import Script, Workplace, composed

SHORT = ("trainer.max_epochs=2", "table=chains", "seed=0")
# One row that trains, and one whose data are not there.
ROWS = "experiment=chains/upg_k5_d0.5,table4/cox2_implicit"


def settings(name: str, **changes: Any) -> DictConfig:
    content = OmegaConf.load(REPOSITORY / "configs" / "cluster" / f"{name}.yaml")
    return OmegaConf.merge(content.cluster, changes)  # type: ignore[return-value]


def identity_of(line: list[str]) -> Identity:
    """Whose run a command line is, as the training script sees it."""
    from hydra.core.hydra_config import HydraConfig

    plain, chosen = as_dict(composed(line)), HydraConfig.get()
    assert chosen.mode.name == "RUN"
    return Identity.of(plain, chosen.runtime.choices["experiment"], list(chosen.overrides.task))


# Listed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "row", "runs"),
    [
        ("table=chains seed=0,1", "chains/implicit", 6),
        ("table=figure3 gradient=npg seed=0", "figure3/digits/implicit/npg_k1_d0.25", 12),
        ("table=table1_jpeg seed=0", "cifar10-jpeg/table1/upg_k5_d0.5_no_dropout", 3),
    ],
)
def test_listed_commands_are_the_runs_of_the_table(
    script: Script, workplace: Workplace, table: str, row: str, runs: int
) -> None:
    """Alone each is the run that the table would make of it: same row, same folder, no change."""
    script.always = ()
    outcome = script(*table.split(), "cluster=list")
    assert outcome.code == 0
    lines = [shlex.split(line) for line in outcome.out.splitlines()]
    assert len(lines) == runs
    assert {tuple(line[:2]) for line in lines} == {("python", str(script.path))}
    assert not list(workplace.path.rglob(".lock"))
    first = identity_of(lines[0][2:])
    assert (first.row, first.instance, first.changes) == (row, "seed0", ())


def test_listed_command_keeps_what_was_overridden(script: Script) -> None:
    outcome = script("experiment=chains/implicit", "seed=3", "optimizer.lr=0.5", "cluster=list")
    (line,) = outcome.out.splitlines()
    assert identity_of(shlex.split(line)[2:]).changes == ("optimizer.lr=0.5",)


def test_cluster_is_a_circumstance() -> None:
    """How a run is started changes neither its name nor its hash."""
    config = {"seed": 0, "model": {"width": 3}}
    other = {**config, "cluster": {"kind": "slurm", "partition": "gpu"}}
    assert hash_config(other) == hash_config(config)
    overrides = ["cluster=slurm", "cluster.partition=gpu"]
    assert Identity.of(other, "row", overrides) == Identity.of(config, "row", [])


def test_row_that_says_no_number_of_devices_is_refused(script: Script) -> None:
    outcome = script("table=chains", "trainer.devices=auto", "cluster=list")
    assert outcome.code == 1
    assert "trainer.devices must be a number from 1" in outcome.err
    assert outcome.out == ""


# On this machine --------------------------------------------------------------------------------

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


def commands(*codes: int, **needs: Any) -> list[Command]:
    return [
        Command(f"row seed{i}", (f"run{i}", str(code)), Path(f"runs/row/seed{i}"), **needs)
        for i, code in enumerate(codes)
    ]


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


# As jobs ------------------------------------------------------------------------------------------


# They outlive the process that has submitted them.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_jobs_without_slurm(script: Script, workplace: Workplace) -> None:
    """submitit starts the same jobs on this machine: a record, a log that ends in the reason."""
    pytest.importorskip("submitit", reason="submitit is not installed (phantomgrad[cluster])")
    outcome = script(ROWS, *SHORT, "cluster=slurm", "cluster.executor=local", "cluster.minutes=2")
    assert outcome.code == 0
    assert "2 jobs submitted" in outcome.out
    assert "chains/upg_k5_d0.5 seed0" in outcome.out
    deadline = time.monotonic() + 120
    done = ("runs/**/record.json", "runs/**/attempt.json")
    failed: dict[str, Any] = {}
    while not (list(workplace.path.glob(done[0])) and "failed" in failed):
        assert time.monotonic() < deadline, outcome.out
        time.sleep(0.1)
        for note in workplace.path.glob("runs/table4/**/attempt.json"):
            failed = json.loads(note.read_text())
    assert "COX2 is not in" in failed["failed"]
    logs = [log.read_text() for log in workplace.path.glob("runs/.cluster/*_log.out")]
    assert any(log.rstrip().endswith(failed["failed"]) for log in logs)


def test_no_slurm_is_said(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed (phantomgrad[cluster])")
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    outcome = script("table=chains", "cluster=slurm")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "cluster=slurm finds no srun here" in outcome.err


class Recorder:
    """Stands in for submitit's executor: keeps what each array was submitted with."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}
        self.arrays: list[tuple[dict[str, Any], list[Command]]] = []

    def update_parameters(self, **parameters: Any) -> None:
        self.parameters = parameters

    def array(self, group: list[Command]) -> list[str]:
        self.arrays.append((self.parameters, group))
        return [f"{len(self.arrays)}_{i}" for i in range(len(group))]


@pytest.fixture
def recorder(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    composed(["table=chains"])  # names the jobs
    monkeypatch.setattr(slurm, "_executor", lambda *_: found)
    monkeypatch.setattr(slurm, "_submit_array", lambda _, group, __: found.array(list(group)))
    return found


def test_jobs_of_the_same_need_are_one_array(recorder: Recorder) -> None:
    rows = [*commands(0, 0), *commands(0, gpu=True, devices=4), *commands(0, gpu=True, nodes=2)]
    mine = settings("slurm", partition="gpu", setup=["module load cuda"], mem_gb=None)
    numbers = submit([rows[0], *rows[2:], rows[1]], mine, Path("train.py"), Path("logs"))
    assert numbers == ["1_0", "1_1", "2_0", "3_0"]
    (alone, two), (ddp, four), (many, over_nodes) = recorder.arrays
    assert (two, four, over_nodes) == (rows[:2], rows[2:3], rows[3:])
    assert (alone["tasks_per_node"], alone["nodes"]) == (1, 1)
    assert "gpus_per_node" not in alone
    assert (ddp["tasks_per_node"], ddp["gpus_per_node"], ddp["nodes"]) == (4, 4, 1)
    assert (many["tasks_per_node"], many["gpus_per_node"], many["nodes"]) == (1, 1, 2)
    assert ddp["slurm_partition"] == "gpu"
    assert ddp["slurm_setup"] == ["export OMP_NUM_THREADS=1", "module load cuda"]
    assert not {"mem_gb", "slurm_account"} & set(ddp)  # left to the cluster


def test_every_setting_is_one_that_submitit_knows(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own check of names, and the batch script that it writes."""
    submitit = pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setattr(shutil, "which", lambda name: name)
    submit(commands(0, gpu=True), settings("slurm"), Path("train.py"), Path("logs"))
    executor = submitit.AutoExecutor(tmp_path, cluster="slurm")
    executor.update_parameters(**recorder.parameters)
    text = executor._executor._make_submission_file_text("command", "id")
    assert "#SBATCH --gpus-per-node=1\n" in text
    assert "#SBATCH --requeue\n" in text
    assert "#SBATCH --signal=USR2@90\n" in text  # the one signal that requeues


def test_job_is_the_script_and_its_exit_code(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["before"])
    path = tmp_path / "script.py"
    path.write_text("import sys; sys.exit(int(sys.argv[1]))")
    Job(str(path), ("0",))()
    with pytest.raises(SystemExit) as end:
        Job(str(path), ("3",))()
    assert end.value.code == 3


def test_job_that_is_told_to_end_waits_for_slurm(tmp_path: Path, monkeypatch: Any) -> None:
    """Had it ended by itself, SLURM would take a preempted job for a finished one."""
    waited: list[float] = []
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setattr(time, "sleep", waited.append)
    path = tmp_path / "script.py"
    path.write_text(
        f"from {SIGTERMException.__module__} import SIGTERMException; raise SIGTERMException"
    )
    with pytest.raises(SystemExit) as end:
        Job(str(path), ())()
    assert (end.value.code, waited) == (1, [1800])


def test_requeued_job_is_the_same_command() -> None:
    pytest.importorskip("submitit", reason="submitit is not installed (phantomgrad[cluster])")
    job = Job("train.py", ("seed=3",))
    assert job.checkpoint().function == job


# Under SLURM --------------------------------------------------------------------------------------


class Listening(Callback):
    """Keeps who listens to the signal that Lightning would requeue at."""

    heard: tuple[Any, ...] = ()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        Listening.heard = (signal.getsignal(signal.SIGUSR1),)


def test_lightning_requeues_nothing(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of submitit and Lightning one puts a job back into the queue: submitit."""
    for name in ("PROCID", "LOCALID", "NODEID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "phantomgrad-chains")
    listening = "+callbacks.listening={_target_: test_cluster.Listening}"
    workplace.train("experiment=chains/implicit", "trainer.max_epochs=1", listening)
    assert sys.modules["test_cluster"].Listening.heard == (signal.SIG_DFL,)
    (environment,) = slurm_environment()
    assert not environment.auto_requeue


def test_environment_of_slurm_is_for_its_own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert slurm_environment() == []
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    assert len(slurm_environment()) == 1
    monkeypatch.setattr(torch.distributed, "is_torchelastic_launched", lambda: True)
    assert slurm_environment() == []
