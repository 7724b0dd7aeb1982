"""A run as a command line, and the devices it needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.jobs.compose import identity_of, without_launcher
from phantomgrad_suite.runs.configs import prefix
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True)
class Command:
    """One run: its row and instance, the arguments of the script, its folder, and its needs."""

    name: str
    arguments: tuple[str, ...]
    folder: Path
    devices: int = 1  # processes on a node, each with a device of its own
    nodes: int = 1
    gpu: bool = False  # whether the devices are GPUs

    @classmethod
    def of(cls, config: DictConfig, overrides: Sequence[str]) -> Command:
        """Return the command of a configuration, composed with Hydra's own part."""
        HydraConfig.instance().set_config(config)
        identity = identity_of(
            OmegaConf.masked_copy(config, [str(k) for k in config if k != "hydra"])
        )
        trainer = config.get("trainer") or {}  # a study has none
        accelerator = config.runtime.trainer.accelerator if trainer else config.device
        devices = str(trainer.get("devices", 1))
        if not devices.isdecimal() or devices == "0":
            raise UserError(
                "trainer.devices must be a positive integer for a row that is launched, "
                f"got {devices}"
            )
        return cls(
            name=f"{identity.row} {identity.instance}",
            # A table switches Hydra to several runs; this is one of them.
            arguments=(*without_launcher(overrides), "hydra.mode=RUN"),
            folder=Path(config.runtime.paths.runs) / identity.row / identity.instance,
            devices=int(devices),
            nodes=trainer.get("num_nodes", 1),
            gpu=accelerator != "cpu",
        )

    def line(self, script: Path) -> str:
        """Return the command for a shell."""
        return shlex.join([*prefix(), "python", str(script), *self.arguments])
