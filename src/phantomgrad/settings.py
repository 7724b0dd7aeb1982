"""Settings of a training run that are looked at before anything is built."""

from __future__ import annotations

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from phantomgrad.environment import launched_from_outside
from phantomgrad.errors import UserError
from phantomgrad.jobs import has_several_processes


def check_settings(config: DictConfig) -> None:
    """Refuse values that would fail far from here, or silently do nothing.

    Raises:
        UserError: a value is none of those there are, or needs what is not here.
    """
    epochs = config.trainer.max_epochs
    if "max_steps" not in config.trainer and (type(epochs) is not int or epochs < 1):
        raise UserError(f"trainer.max_epochs must be a positive integer, got {epochs!r}")
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
