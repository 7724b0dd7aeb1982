"""A run of a table or suite as a command line, and the devices it needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.jobs.job import as_dict
from phantomgrad_suite.jobs.overrides import identify
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True)
class Command:
    """One run.

    Args:
        name: row and instance.
        arguments: of the script, for this run alone, in the process itself.
        folder: the run folder.
        config_hash: of the configuration.
        devices: processes on a node, each with a device of its own.
        nodes: machines that share the run.
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
        """Return the command of a composed row or study, with Hydra's own part.

        Raises:
            UserError: the number of devices of the row is not fixed.
        """
        HydraConfig.instance().set_config(config)
        choices = config.hydra.runtime.choices
        plain = as_dict(OmegaConf.masked_copy(config, [str(k) for k in config if k != "hydra"]))
        kept = [o for o in overrides if o.lstrip("+").split("=")[0].split(".")[0] != "cluster"]
        identity = identify(plain, choices.get("experiment") or choices.get("study"), kept)
        trainer = plain.get("trainer") or {"accelerator": plain["device"]}  # or a study
        return cls(
            name=f"{identity.row} {identity.instance}",
            # A table switches Hydra to several runs; this is one of them.
            arguments=(*kept, "hydra.mode=RUN"),
            folder=runs_folder(config) / identity.row / identity.instance,
            config_hash=identity.config_hash,
            devices=_count(trainer.get("devices", 1)),
            nodes=trainer.get("num_nodes", 1),
            gpu=trainer["accelerator"] != "cpu",
        )

    def line(self, script: Path) -> str:
        """Return the command for a shell."""
        return shlex.join(["python", str(script), *self.arguments])


def runs_folder(config: DictConfig) -> Path:
    """Return the folder of all runs."""
    return Path(config.paths.runs)


def _count(devices: object) -> int:
    if isinstance(devices, str) and devices.isdecimal():
        devices = int(devices)
    if type(devices) is not int or devices < 1:
        raise UserError(
            "trainer.devices must be a positive integer for a row that is launched, "
            f"got {devices!r}"
        )
    return devices
