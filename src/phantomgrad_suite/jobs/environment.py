"""The environment of a run: revision, versions, hardware, processes, and settings of torch."""

import importlib.metadata
import logging
import os
import platform
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning import Trainer
from omegaconf import DictConfig

from phantomgrad_suite.jobs.processes import is_first_process
from phantomgrad_suite.runs.configs import IS_CHECKOUT, ROOT
from phantomgrad_suite.runs.errors import SettingError

log = logging.getLogger(__name__)

_PACKAGES = (
    *("torch", "torchvision", "torchmetrics", "lightning", "hydra-core", "torch-geometric"),
    *("numpy", "scikit-learn"),
)

_CPUINFO = Path("/proc/cpuinfo")


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return git revision, versions, processor, threads and, if it is in use, the accelerator."""
    return {
        "git": git_revision(),
        "python": platform.python_version(),
        "versions": _versions(),
        "system": platform.system(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def load_average() -> float | None:
    """Return the mean number of running processes over the last minute, ``None`` on Windows.

    Other work on the machine changes seconds, even those of the processor.
    """
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def check_processes(config: DictConfig, trainer: Trainer) -> None:
    """Raise if the processes are not those of the configuration, or a table must start them."""
    devices, nodes = config.trainer.devices, config.trainer.num_nodes
    expected, started = trainer.num_devices * trainer.num_nodes, trainer.world_size
    if str(devices) not in ("auto", "-1") and started != expected:
        raise SettingError(
            f"trainer.devices={devices} of trainer.num_nodes={nodes} is {expected} processes, but "
            f"{started} started: under SLURM start the row by "
            f"srun --ntasks-per-node={trainer.num_devices}, or by cluster=slurm"
        )
    cluster: Any = getattr(trainer.strategy, "cluster_environment", None)
    from_outside = cluster is not None and cluster.creates_processes_externally
    if started > 1 and HydraConfig.get().mode is RunMode.MULTIRUN and not from_outside:
        raise SettingError(
            f"a table cannot start the processes of trainer.devices={devices} for each of its "
            "rows: start the rows one by one (experiment=...), or with cluster=slurm, "
            "cluster=local, torchrun or srun"
        )


def choose_threads(number: int | None, setting: str) -> None:
    """Let torch use so many threads of the CPU; by default those of OMP_NUM_THREADS, or one.

    Small models, and several runs at once, are slower with more, and results depend on the number.
    ``setting`` is what the configuration calls it.
    """
    if number is not None and (type(number) is not int or number < 1):
        raise SettingError(f"{setting} must be a positive integer or null, got {number!r}")
    if number is None and "OMP_NUM_THREADS" in os.environ:
        return
    torch.set_num_threads(number or 1)
    if number is None and (os.cpu_count() or 1) > 1:
        _say(logging.INFO, f"one CPU thread; for more: {setting}=<number>, or OMP_NUM_THREADS")


@cache  # once
def _say(level: int, message: str) -> None:
    if is_first_process():
        log.log(level, "%s", message)


def set_float32_precision(precision: str) -> None:
    """Set how float32 products and convolutions are computed: ``highest``, or TF32 if lower.

    By default, torch computes convolutions in TF32 on CUDA, which stops residuals from falling
    below about 1e-4.
    """
    if precision not in ("highest", "high", "medium"):
        raise SettingError(f"matmul_precision must be highest, high or medium, got {precision!r}")
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision != "highest"


def git_revision() -> str | None:
    """Return the commit of this checkout, with ``+dirty`` if source or configs were changed.

    Of an installed package it is the version, which names its commit.
    """
    if not IS_CHECKOUT:
        return importlib.metadata.version("phantomgrad-suite")
    revision = _git("rev-parse", "HEAD")
    changed = revision and _git("status", "--porcelain", "--", "src", "configs")
    return f"{revision}+dirty" if changed else revision


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError) as error:
        answer = " ".join(str(getattr(error, "stderr", None) or error).split())
        _say(logging.WARNING, f"records will not name the revision of the code: {answer}")
        return None
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    """Return the versions of installed packages and, with a GPU, of its libraries."""
    found = {}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    if torch.cuda.device_count():
        # Some builds have no cuDNN; those for AMD GPUs have no CUDA.
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        libraries = {"cuda": torch.version.cuda, "cudnn": cudnn}
        found |= {name: str(version) for name, version in libraries.items() if version}
    return found


def _processor() -> str:
    """Return the processor with family and model, as clouds give several types one name."""
    try:
        text = _CPUINFO.read_text()
    except OSError:
        return platform.processor()
    facts = dict(re.findall(r"^(.+?)\s*: (.*)", text.split("\n\n")[0], re.MULTILINE))
    name = facts.get("model name", platform.machine())
    if "cpu family" in facts:
        name += " family {cpu family} model {model}".format(**facts)
    return f"{name} ({os.cpu_count()} cores)"
