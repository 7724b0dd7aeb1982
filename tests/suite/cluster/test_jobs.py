"""A table as jobs of submitit: their parameters, and what a job does."""

import shutil
import signal
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster.commands import SHORT, commands, settings
from lightning import Callback
from lightning.pytorch.utilities.exceptions import SIGTERMException
from training import composed

from phantomgrad_suite.cluster import slurm
from phantomgrad_suite.cluster.slurm import Job, slurm_environment, submit


# They outlive the process that has submitted them.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_job_without_slurm(script, workplace):
    """submitit starts the same job here: it has a record, and a log."""
    pytest.importorskip("submitit", reason="submitit is not installed (phantomgrad-suite[cluster])")
    local = ("runtime.cluster.executor=local", "runtime.cluster.minutes=6")
    outcome = script("experiment=chains/upg_k5_d0.5", *SHORT, "cluster=slurm", *local)
    assert outcome.code == 0
    assert "1 job submitted" in outcome.out
    assert "chains/upg_k5_d0.5 seed0" in outcome.out
    deadline = time.monotonic() + 1200  # only a failure takes so long
    while not list(workplace.path.glob("runs/**/record.json")):
        assert time.monotonic() < deadline, outcome.out
        time.sleep(0.1)
    (log,) = workplace.path.glob("runs/.cluster/*_log.out")
    assert "accuracy best" in log.read_text()


def test_missing_submitit_and_slurm_are_explained(script, monkeypatch):
    pytest.importorskip("submitit", reason="submitit is not installed (phantomgrad-suite[cluster])")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda *_: None)
        outcome = script("experiment=chains/implicit", "cluster=slurm")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "cluster=slurm finds no srun here" in outcome.err
    monkeypatch.setitem(sys.modules, "submitit", None)
    outcome = script("experiment=chains/implicit", "cluster=slurm")
    assert "cluster=slurm needs the package submitit: pip install submitit" in outcome.err


class Recorder:
    """Stands in for submitit's executor: keeps what each array was submitted with."""

    def __init__(self):
        self.parameters = {}
        self.arrays = []

    def update_parameters(self, **parameters):
        self.parameters = parameters

    def batch(self):
        self.arrays.append((self.parameters, []))
        return nullcontext()

    def submit(self, job):
        jobs = self.arrays[-1][1]
        jobs.append(job)
        return SimpleNamespace(job_id=f"{len(self.arrays)}_{len(jobs) - 1}")


@pytest.fixture
def recorder(workplace, monkeypatch):
    found = Recorder()
    composed(["experiment=chains/implicit"])
    monkeypatch.setattr(slurm, "_executor", lambda *_: found)
    return found


def test_jobs_with_equal_needs_are_one_array(recorder):
    rows = [*commands(0, 0), *commands(0, gpu=True, devices=4), *commands(0, gpu=True, nodes=2)]
    rows[2] = replace(rows[2], name="cpu/table1/implicit seed0")
    mine = settings("slurm", partition="gpu", setup=["module load cuda"], mem_gb=None)
    mine.cpus_per_task = None
    numbers = submit([rows[0], *rows[2:], rows[1]], mine, Path("train.py"), Path("logs"))
    assert numbers == ["1_0", "1_1", "2_0", "3_0"]
    (alone, two), (ddp, four), (many, over_nodes) = recorder.arrays
    assert [len(jobs) for jobs in (two, four, over_nodes)] == [2, 1, 1]
    assert two[1] == Job(str(Path("train.py")), rows[1].arguments)
    assert (alone["tasks_per_node"], alone["nodes"]) == (1, 1)
    assert "gpus_per_node" not in alone
    assert (ddp["tasks_per_node"], ddp["gpus_per_node"], ddp["nodes"]) == (4, 4, 1)
    assert (many["tasks_per_node"], many["gpus_per_node"], many["nodes"]) == (1, 1, 2)
    assert ddp["slurm_partition"] == "gpu"
    assert (alone["name"], ddp["name"]) == ("phantomgrad", "phantomgrad-cpu-table1")
    assert ddp["slurm_setup"] == ["export OMP_NUM_THREADS=1", "module load cuda"]
    assert not {"mem_gb", "slurm_account", "cpus_per_task"} & set(ddp)  # left to the cluster
    assert not any("cpus" in argument for argument in ddp["slurm_srun_args"])


def test_jobs_of_a_table_have_its_name(recorder):
    composed(["table=chains"])
    submit(commands(0), settings("slurm"), Path("train.py"), Path("logs"))
    assert recorder.arrays[0][0]["name"] == "phantomgrad-chains"


def test_job_is_the_script_and_its_exit_code(tmp_path, monkeypatch):
    """A stopped one waits for SLURM, which would take a preempted job for a finished one."""
    waited = []
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setattr(time, "sleep", waited.append)
    path = tmp_path / "script.py"
    path.write_text("import sys; sys.exit(int(sys.argv[1]))")
    Job(str(path), ("0",))()
    with pytest.raises(SystemExit, match="3"):
        Job(str(path), ("3",))()
    path.write_text(
        f"from {SIGTERMException.__module__} import SIGTERMException; raise SIGTERMException"
    )
    with pytest.raises(SystemExit, match="1"):
        Job(str(path), ())()
    assert waited == [1800]


class Listening(Callback):
    """Records the handlers of the signal at which Lightning would requeue."""

    heard = ()

    def on_train_start(self, trainer, pl_module):
        Listening.heard = (signal.getsignal(signal.SIGUSR1),)


def test_lightning_requeues_nothing(workplace, monkeypatch):
    """Only submitit puts a job back into the queue."""
    for name in ("PROCID", "LOCALID", "NODEID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "phantomgrad-chains")
    listening = "+runtime.callbacks.listening={_target_: cluster.test_jobs.Listening}"
    workplace.train("experiment=chains/implicit", "trainer.max_epochs=1", listening)
    assert sys.modules["cluster.test_jobs"].Listening.heard == (signal.SIG_DFL,)
    (environment,) = slurm_environment()
    assert not environment.auto_requeue
