"""Settings of a training run that are checked before anything is built."""

from __future__ import annotations

import re
from functools import cache

import torch
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning import Trainer
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.jobs.compose import composing, nearest
from phantomgrad_suite.jobs.environment import launched_from_outside
from phantomgrad_suite.jobs.job import has_several_processes
from phantomgrad_suite.runs.errors import UserError

_CHOICES = {
    "nonfinite": ("stop", None),
    "matmul_precision": ("highest", "high", "medium"),
    "runtime.compile": (None, "default", "reduce-overhead", "max-autotune"),
}


def check_settings(config: DictConfig) -> None:
    """Refuse values that would fail late with a long traceback, or silently do nothing.

    Raises:
        UserError: a value is not allowed, or needs hardware that is missing.
    """
    _check_names(config)
    for key, allowed in _CHOICES.items():
        if (value := OmegaConf.select(config, key)) not in allowed:
            listed = ", ".join("null" if a is None else a for a in allowed)
            raise UserError(f"{key} must be one of {listed}, got {value!r}")
    trainer, fold = config.trainer, config.dataset.get("fold", 0)
    if type(fold) is not int:
        raise UserError(f"dataset.fold must be an integer, got {fold!r}")
    if type(trainer.max_epochs) is not int or trainer.max_epochs < 1:
        raise UserError(
            f"trainer.max_epochs must be a positive integer, got {trainer.max_epochs!r}"
        )
    for name in ("max_steps", "max_time"):
        if (limit := trainer.get(name)) not in (None, -1):
            raise UserError(
                f"trainer.{name}={limit} would end the run where it cannot be resumed: set "
                "trainer.max_epochs instead"
            )
    epochs = config.runtime.checkpoint.every_n_epochs
    if type(epochs) is not int or epochs < 1:
        raise UserError(
            f"runtime.checkpoint.every_n_epochs must be a positive integer, got {epochs!r}"
        )
    minutes = config.runtime.checkpoint.every_minutes
    if minutes is not None and (type(minutes) not in (int, float) or not minutes >= 0):
        raise UserError(
            "runtime.checkpoint.every_minutes must be a number (0: after every step) or null, "
            f"got {minutes!r}"
        )
    _check_devices(config)


def _check_devices(config: DictConfig) -> None:
    trainer, accelerator = config.trainer, config.runtime.trainer.accelerator
    multirun = HydraConfig.get().mode is RunMode.MULTIRUN
    if has_several_processes(config) and multirun and not launched_from_outside():
        raise UserError(
            f"a table cannot start the processes of trainer.devices={trainer.devices} for each of "
            "its rows: start the rows one by one (experiment=...), or with cluster=slurm, "
            "cluster=local, torchrun or srun"
        )
    if trainer.get("sync_batchnorm") and (accelerator == "cpu" or not torch.cuda.is_available()):
        raise UserError(
            "trainer.sync_batchnorm=true needs GPUs (torch supports no other device), got "
            f"runtime.trainer.accelerator={accelerator}"
        )


def _check_names(config: DictConfig) -> None:
    """Refuse unknown top-level keys: Hydra accepts them from a file or with a plus."""
    interpolated = set(re.findall(r"\$\{(\w+)", OmegaConf.to_yaml(config)))
    for key in map(str, config):
        if key not in known_settings() | interpolated:
            where = nearest(key, sorted(known_settings()), "train.yaml")
            raise UserError(f"there is no setting {key!r}; {where}")


@cache
def known_settings() -> frozenset[str]:
    """Return the top-level keys of a training configuration."""
    with composing():
        return frozenset(map(str, compose("train")))


def check_processes(config: DictConfig, trainer: Trainer) -> None:
    """Refuse a run whose number of processes is not the one in its configuration.

    Raises:
        UserError: torchrun or SLURM started more or fewer processes than ``trainer.devices`` of
            each node.
    """
    expected, started = trainer.num_devices * trainer.num_nodes, trainer.world_size
    if str(config.trainer.devices) in ("auto", "-1") or started == expected:
        return
    raise UserError(
        f"trainer.devices={config.trainer.devices} of trainer.num_nodes={trainer.num_nodes} is "
        f"{expected} processes, but there {'is' if started == 1 else 'are'} {started}: under SLURM "
        f"start the row by srun --ntasks-per-node={trainer.num_devices}, or by cluster=slurm"
    )
