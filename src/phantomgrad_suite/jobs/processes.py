"""Which of the processes of a run this one is, before Lightning knows it and without its import."""

import os

from omegaconf import DictConfig

from phantomgrad_suite.runs.errors import SettingError


def is_first_process() -> bool:
    """Return whether this is the first process of a distributed run, before Lightning knows it."""
    ranks = (os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))
    rank = next((rank for rank in ranks if rank is not None), "0")
    # Without RANK, LOCAL_RANK counts on the node.
    return int(rank) == 0 and ("RANK" in os.environ or os.environ.get("NODE_RANK", "0") == "0")


def has_several_processes(config: DictConfig) -> bool:
    """Return whether a run has several processes, one for each device of each node."""
    trainer = config.get("trainer") or {}
    return bool(trainer.get("devices", 1) != 1 or trainer.get("num_nodes", 1) != 1)


def is_started_with_others() -> bool:
    """Return whether torchrun, srun or a user starts all processes of a run, not Lightning."""
    return "LOCAL_RANK" in os.environ or is_started_by_slurm()


def is_started_by_slurm() -> bool:
    """Return whether Lightning takes this process for one of SLURM's tasks."""
    # Imported here: who is first, which every command asks, does not need Lightning.
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    found, tasks = SLURMEnvironment.detect(), os.environ.get("SLURM_NTASKS", "1")
    if found and tasks != "1" and "SLURM_NTASKS_PER_NODE" not in os.environ:  # Lightning needs it
        raise SettingError(
            f"SLURM_NTASKS={tasks} without a number of tasks a node: start a row of several "
            f"processes by srun --ntasks-per-node={tasks}, one of a single process after "
            "unset SLURM_NTASKS, and a table by cluster=slurm"
        )
    return found
