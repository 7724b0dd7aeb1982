"""Settings of a training run that are looked at before anything is built."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.jobs.command_line import CONFIGS, nearest
from phantomgrad_suite.jobs.environment import launched_from_outside
from phantomgrad_suite.jobs.job import has_several_processes
from phantomgrad_suite.runs.errors import UserError


def check_settings(config: DictConfig) -> None:
    """Refuse values that would fail far from here, or silently do nothing.

    Raises:
        UserError: a value is none of those there are, or needs what is not here.
    """
    _check_names(config)
    _check_length(config.trainer)
    fold = config.dataset.get("fold", 0)
    if type(fold) is not int:
        raise UserError(f"dataset.fold must be an integer, got {fold!r}")
    multirun = HydraConfig.get().mode is RunMode.MULTIRUN
    if has_several_processes(config) and multirun and not launched_from_outside():
        raise UserError(
            f"a table cannot start the processes of trainer.devices={config.trainer.devices} for "
            "each of its rows: start the rows one by one (experiment=...), or by cluster=slurm, "
            "cluster=local, torchrun or srun"
        )
    minutes = config.checkpoint_every_minutes
    if minutes is not None and (type(minutes) not in (int, float) or not minutes >= 0):
        raise UserError(
            f"checkpoint_every_minutes must be a number, 0 for every step, or null, got {minutes!r}"
        )
    accelerator = config.trainer.get("accelerator", "auto")
    if config.trainer.get("sync_batchnorm") and (
        accelerator == "cpu" or not torch.cuda.is_available()
    ):
        raise UserError(
            "trainer.sync_batchnorm=true needs GPUs, torch has it for no other device, "
            f"got trainer.accelerator={accelerator}"
        )
    if config.nonfinite not in ("stop", "skip", None):
        raise UserError(f"nonfinite must be stop, skip or null, got {config.nonfinite!r}")
    precision = config.matmul_precision
    if precision not in ("highest", "high", "medium"):
        raise UserError(f"matmul_precision must be highest, high or medium, got {precision!r}")


def _check_length(trainer: DictConfig) -> None:
    epochs = trainer.max_epochs
    if type(epochs) is not int or epochs < 1:
        raise UserError(f"trainer.max_epochs must be a positive integer, got {epochs!r}")
    for name in ("max_steps", "max_time"):
        if (limit := trainer.get(name)) not in (None, -1):
            raise UserError(
                f"trainer.{name}={limit} would break the run off where it cannot be resumed: set "
                "trainer.max_epochs instead"
            )


def _check_names(config: DictConfig) -> None:
    """Refuse what nothing reads: Hydra adds it, from a file or by a plus, and it does nothing."""
    interpolated = set(re.findall(r"\$\{(\w+)", OmegaConf.to_yaml(config)))
    for key in map(str, config):
        if key not in known_settings() | interpolated:
            where = nearest(key, sorted(known_settings()), "train.yaml")
            raise UserError(f"there is no setting {key!r}; {where}")


@cache
def known_settings() -> frozenset[str]:
    """Return what ``configs/train.yaml`` declares at the top: its own keys, and its groups."""
    root = OmegaConf.load(CONFIGS / "train.yaml")
    assert isinstance(root, DictConfig)
    groups = [str(group) for entry in root.defaults if entry != "_self_" for group in entry]
    own = {str(key) for key in root} - {"defaults", "hydra"}
    filled = {group.rpartition("@")[2] for group in groups if " " not in group}
    return frozenset(own | (filled - {"experiment", "table"}))  # lists of rows fill in other keys


def check_processes(config: DictConfig, processes: int) -> None:
    """Refuse to share a run among another number of processes than its configuration says.

    Raises:
        UserError: more or fewer processes were started than ``trainer.devices`` of each node.
    """
    asked = processes_asked_for(config)
    if asked in (None, processes):
        return
    devices, nodes = config.trainer.devices, config.trainer.get("num_nodes") or 1
    raise UserError(
        f"trainer.devices={devices} of trainer.num_nodes={nodes} is {asked} processes, but there "
        f"{'is' if processes == 1 else 'are'} {processes}: under SLURM start the row by "
        f"srun --ntasks-per-node={asked // nodes}, or by cluster=slurm"
    )


def processes_asked_for(config: DictConfig) -> int | None:
    """Return how many processes a run is to have, ``None`` where it takes what devices there are.

    Devices are a number, or named one by one: ``4``, ``[0, 3]``, ``"0,3"``.
    """
    devices, nodes = config.trainer.get("devices", 1), int(config.trainer.get("num_nodes") or 1)
    if isinstance(devices, str) and "," in devices:
        return nodes * len([name for name in devices.split(",") if name.strip()])
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        return nodes * len(devices)
    if str(devices) in ("None", "auto", "-1"):
        return None
    return nodes * int(devices)
