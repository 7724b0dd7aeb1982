"""Runs as jobs of SLURM, submitted and requeued by submitit.

Who requeues: submitit. SLURM sends its jobs SIGUSR2 a while before their time is up; the run saves
where it stands, and submitit puts it back into the queue. Preempted jobs and those of a broken node
SLURM requeues itself.
Lightning, which would listen to SIGUSR1, is told not to (:mod:`phantomgrad_suite.train`). A requeued job
is the same command again: it goes on from the last checkpoint.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from lightning.pytorch.utilities.exceptions import SIGTERMException
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.runs.errors import UserError

if TYPE_CHECKING:
    import submitit

_GRACE_SECONDS = 1800


@dataclass(frozen=True)
class Job:
    """The training script with its arguments, in a process that SLURM has started.

    Of a row on several devices SLURM starts one such process for each.
    """

    script: str
    arguments: tuple[str, ...]

    def __call__(self) -> None:
        """Run the script; a failure is the exit code of the process."""
        sys.argv = [self.script, *self.arguments]
        requeue = signal.getsignal(signal.SIGUSR2)  # submitit's; the run listens in its place
        try:
            runpy.run_path(self.script, run_name="__main__")
        except SIGTERMException as stop:
            if stop.code == 128 + signal.SIGINT:  # nobody's wish but the user's
                raise
            if stop.code == 128 + signal.SIGUSR2 and callable(requeue):
                requeue(signal.SIGUSR2, None)  # of the first process it is the end
            # Training has stopped. What is to become of the job is SLURM's to say: it kills a
            # cancelled one, and requeues a preempted one, if that is still there to be killed.
            time.sleep(_GRACE_SECONDS)
            sys.exit(1)
        except SystemExit as end:
            if end.code:
                raise

    def checkpoint(self) -> Any:
        """Say what is to be done after requeueing: the same again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(
    commands: Sequence[Command], settings: DictConfig, script: Path, folder: Path
) -> list[str]:
    """Submit the runs, those that need the same in one array; return the numbers of the jobs.

    Args:
        commands: the runs.
        settings: of ``configs/cluster/slurm.yaml``.
        script: ``scripts/train.py``.
        folder: where the jobs leave their logs.

    Raises:
        UserError: there is no SLURM, or it refuses the jobs, or they would be warned too early.
    """
    _check_warning(settings.minutes, settings.warning_seconds)
    executor = _executor(settings, folder)
    alike = defaultdict(list)
    for command in commands:
        alike[command.devices, command.nodes, command.gpu].append(command)
    submitted = []
    for group in alike.values():
        executor.update_parameters(**_parameters(group[0], settings))
        for command, number in zip(group, _submit_array(executor, group, script), strict=True):
            print(f"job {number}: {command.name}", flush=True)
            submitted.append(number)
    print(f"{len(submitted)} jobs submitted; their logs: {folder}/<job>_0_log.out; make status")
    return submitted


def _check_warning(minutes: Any, seconds: Any) -> None:
    """Refuse jobs that are told at their very beginning that their time is up."""
    if seconds is None:
        return
    if type(seconds) is not int or seconds < 1:
        raise UserError(f"cluster.warning_seconds must be a positive integer, got {seconds!r}")
    if type(minutes) is not int or 60 * minutes <= seconds:
        raise UserError(
            f"cluster.minutes must be longer than cluster.warning_seconds={seconds}, got {minutes}"
        )


def _executor(settings: DictConfig, folder: Path) -> submitit.AutoExecutor:
    try:
        import submitit
    except ModuleNotFoundError as error:
        raise UserError(
            "cluster=slurm needs the package submitit: pip install -e '.[cluster]' in the checkout"
        ) from error
    try:
        return submitit.AutoExecutor(
            folder, cluster=settings.executor, slurm_max_num_timeout=settings.requeues
        )
    except RuntimeError as error:
        raise UserError(
            "cluster=slurm finds no srun here: start it where jobs are submitted from, or try "
            "cluster=local or cluster=list"
        ) from error


def _submit_array(
    executor: submitit.AutoExecutor, commands: Sequence[Command], script: Path
) -> list[str]:
    import submitit

    try:
        with executor.batch():
            jobs = [executor.submit(Job(str(script), command.arguments)) for command in commands]
        return [job.job_id for job in jobs]
    except (submitit.core.utils.FailedJobError, OSError) as error:
        said = [line for line in str(error).splitlines() if line.strip()]
        raise UserError(f"SLURM refuses the jobs: {said[-1] if said else error!r}") from error


def _parameters(command: Command, settings: DictConfig) -> dict[str, Any]:
    """Return submitit's words for what a job needs; what is null is left to the cluster."""
    choices = HydraConfig.get().runtime.choices
    cpus, memory = settings.cpus_per_task, settings.mem_gb
    parameters = {
        "name": f"phantomgrad-{choices.get('table') or 'run'}",
        "nodes": command.nodes,
        "tasks_per_node": command.devices,  # one process a device, started by srun
        "gpus_per_node": command.devices if command.gpu else None,
        "cpus_per_task": cpus,
        "mem_gb": None if memory is None else memory * command.devices,
        "timeout_min": settings.minutes,
        "stderr_to_stdout": True,
        "slurm_partition": settings.partition,
        "slurm_account": settings.account,
        "slurm_qos": settings.qos,
        "slurm_constraint": settings.constraint,
        "slurm_array_parallelism": settings.jobs,
        "slurm_signal_delay_s": settings.warning_seconds,
        "slurm_setup": [f"export OMP_NUM_THREADS={settings.threads}", *settings.setup],
        # Without the first two, processes wait for one that has ended; srun does not inherit cpus.
        "slurm_srun_args": ["--kill-on-bad-exit=1", "--wait=600", f"--cpus-per-task={cpus}"],
        "slurm_additional_parameters": {
            "requeue": True,
            **OmegaConf.to_container(settings.more),  # type: ignore[dict-item]
        },
    }
    return {name: value for name, value in parameters.items() if value is not None}
