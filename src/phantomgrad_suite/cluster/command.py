"""A run of a table as a command line, and what it needs of a machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.jobs.compose import identity_of
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True)
class Command:
    """One run.

    Args:
        name: row and instance.
        arguments: of ``scripts/train.py``, for this run alone, in the process itself.
        folder: the run folder.
        config_hash: of the configuration.
        devices: processes on a node, each with a device of its own.
        nodes: the machines that share the run.
        gpu: whether the devices are to be GPUs.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path
    config_hash: str = ""
    devices: int = 1
    nodes: int = 1
    gpu: bool = False

    @classmethod
    def of(cls, config: DictConfig, overrides: Sequence[str]) -> Command:
        """Make the command of a composed row, Hydra's own part included.

        Raises:
            UserError: the row does not say how many devices it runs on.
        """
        HydraConfig.instance().set_config(config)
        kept = [
            o
            for o in overrides
            if not o.startswith(("cluster=", "runtime.cluster.", "+runtime.cluster."))
        ]
        plain = OmegaConf.masked_copy(config, [str(k) for k in config if k != "hydra"])
        identity = identity_of(plain)
        trainer = config.trainer
        return cls(
            name=f"{identity.row} {identity.instance}",
            # A table switches Hydra to several runs, and may set more; this is one of them.
            arguments=(*kept, "hydra.mode=RUN"),
            folder=Path(config.runtime.paths.runs) / identity.row / identity.instance,
            config_hash=identity.config_hash,
            devices=_count(trainer.devices),
            nodes=trainer.num_nodes,
            gpu=config.runtime.trainer.accelerator != "cpu",
        )

    def line(self, script: Path) -> str:
        """Return the command for a shell."""
        return shlex.join(["python", str(script), *self.arguments])


def _count(devices: object) -> int:
    if isinstance(devices, str) and devices.isdecimal():
        devices = int(devices)
    if type(devices) is not int or devices < 1:
        raise UserError(
            f"trainer.devices must be a number from 1 for a row that is launched, got {devices!r}"
        )
    return devices
