"""Runs as SLURM jobs, submitted and requeued by submitit.

SLURM sends its jobs SIGUSR2 shortly before their time limit; the run saves a checkpoint, and
submitit requeues the job, which is the same command again and resumes. SLURM itself requeues
preempted jobs and those of a failed node. Lightning, which would listen to SIGUSR1, requeues none.
"""

import runpy
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.utilities.exceptions import SIGTERMException
from omegaconf import DictConfig

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.jobs.processes import is_started_by_slurm
from phantomgrad_suite.runs.errors import UserError

_GRACE_SECONDS = 1800


def slurm_environment() -> list[SLURMEnvironment]:
    """Return Lightning's plugin for a process that SLURM started, without its requeueing.

    That would leave a checkpoint in the working directory, for any row that starts there next.
    """
    if TorchElasticEnvironment.detect() or not is_started_by_slurm():
        return []
    return [SLURMEnvironment(auto_requeue=False)]


@dataclass(frozen=True)
class Job:
    """The script with its arguments, in a process that SLURM started: one for each device."""

    script: str
    arguments: tuple[str, ...]

    def __call__(self) -> None:
        """Run the script; a failure becomes the exit code of the process."""
        sys.argv = [self.script, *self.arguments]
        requeue = signal.getsignal(signal.SIGUSR2)  # submitit's, which the run replaces
        try:
            runpy.run_path(self.script, run_name="__main__")
        except SIGTERMException as stop:
            if stop.code == 128 + signal.SIGINT:  # from the user, not from SLURM
                raise
            if stop.code == 128 + signal.SIGUSR2 and callable(requeue):
                requeue(signal.SIGUSR2, None)  # does not return in the first process
            # SLURM kills a cancelled job, and requeues a preempted one if that has not ended.
            time.sleep(_GRACE_SECONDS)
            sys.exit(1)
        except SystemExit as end:
            if end.code:
                raise

    def checkpoint(self) -> Any:
        """Return what submitit requeues: the same job."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(
    commands: Sequence[Command], settings: DictConfig, script: Path, folder: Path
) -> list[str]:
    """Submit the runs, those with equal needs as one array; return the numbers of the jobs.

    ``settings`` are those of ``configs/cluster/slurm.yaml``; ``folder`` is for the logs.
    """
    executor = _executor(settings, folder)
    arrays = defaultdict(list)
    for command in commands:
        arrays[command.devices, command.nodes, command.gpu].append(command)
    submitted: list[str] = []
    for array in arrays.values():
        executor.update_parameters(**_parameters(array[0], settings))
        try:
            with executor.batch():
                jobs = [executor.submit(Job(str(script), command.arguments)) for command in array]
            numbers = [job.job_id for job in jobs]
        except Exception as error:  # submitit's own types, and OSError
            reason = (str(error).strip() or repr(error)).splitlines()[-1]
            raise UserError(f"SLURM refused the jobs: {reason}") from error
        for command, number in zip(array, numbers, strict=True):
            print(f"job {number}: {command.name}", flush=True)
        submitted += numbers
    count = f"{len(submitted)} job{'s' * (len(submitted) != 1)} submitted"
    print(f"{count}; logs: {folder}/<job>_0_log.out; `make status` shows the state of the runs")
    return submitted


def _executor(settings: DictConfig, folder: Path) -> Any:
    try:
        import submitit

        return submitit.AutoExecutor(
            folder, cluster=settings.executor, slurm_max_num_timeout=settings.requeues
        )
    except ModuleNotFoundError as error:
        raise UserError("cluster=slurm needs the package submitit: pip install submitit") from error
    except RuntimeError as error:
        raise UserError(
            "cluster=slurm finds no srun here: start it where jobs are submitted from, or try "
            "cluster=local or cluster=list"
        ) from error


def _parameters(command: Command, settings: DictConfig) -> dict[str, Any]:
    """Return submitit's parameters of a job; those that are null are left to the cluster."""
    cpus, table = settings.cpus_per_task, HydraConfig.get().runtime.choices.get("table")
    name = [table] if table else command.name.split("/")[:-1]  # or the folder of the row
    own = ("partition", "account", "qos", "constraint")
    srun_cpus = [] if cpus is None else [f"--cpus-per-task={cpus}"]
    parameters = {
        "name": "-".join(["phantomgrad", *name]),
        "nodes": command.nodes,
        "tasks_per_node": command.devices,  # one process for each device, started by srun
        "gpus_per_node": command.devices if command.gpu else None,
        "cpus_per_task": cpus,
        "mem_gb": settings.mem_gb and settings.mem_gb * command.devices,
        "timeout_min": settings.minutes,
        "stderr_to_stdout": True,
        **{f"slurm_{key}": settings[key] for key in own},
        "slurm_array_parallelism": settings.jobs,
        "slurm_signal_delay_s": settings.warning_seconds,
        "slurm_setup": [f"export OMP_NUM_THREADS={settings.threads}", *settings.setup],
        # Without these, processes wait for one that has ended; srun does not inherit cpus.
        "slurm_srun_args": ["--kill-on-bad-exit=1", "--wait=600", *srun_cpus],
        "slurm_additional_parameters": {"requeue": True, **settings.more},
    }
    return {name: value for name, value in parameters.items() if value is not None}
