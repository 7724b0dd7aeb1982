"""The environment of a run: revision, versions, hardware, and its processes."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

_PACKAGES = (
    *("torch", "torchvision", "torchmetrics", "lightning", "hydra-core", "torch-geometric"),
    *("numpy", "scikit-learn"),
)


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return git revision, versions, processor, threads and accelerator.

    Args:
        device: the device in use; an unused accelerator is not listed.
    """
    return {
        "git": git_revision(),
        "python": platform.python_version(),
        "versions": _versions(),
        "system": platform.system(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def is_first_process() -> bool:
    """Return whether this is the first process of a distributed run, or its only one."""
    if "RANK" in os.environ:
        ranks: tuple[str, ...] = ("RANK",)
    elif _started_by_slurm():
        ranks = ("SLURM_PROCID",)
    else:
        ranks = ("NODE_RANK", "LOCAL_RANK")
    return all(int(os.environ.get(name, "0")) == 0 for name in ranks)


def own_device(accelerator: str) -> torch.device:
    """Return the device that this process will train on, before a trainer exists."""
    if accelerator == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    local = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0
    visible = torch.cuda.device_count()  # 1 where the scheduler shows each process its own GPU
    return torch.device("cuda", max(0, min(int(local), visible - 1)))


def launched_from_outside() -> bool:
    """Return whether torchrun or srun has started all processes of a distributed run."""
    tasks = int(os.environ.get("SLURM_NTASKS", "1"))  # 1 also in a batch script without srun
    return "TORCHELASTIC_RUN_ID" in os.environ or (_started_by_slurm() and tasks > 1)


def _started_by_slurm() -> bool:
    """Return whether Lightning takes its processes from SLURM.

    In an interactive shell Lightning starts them, and all inherit SLURM_PROCID from the shell.
    """
    shells = ("bash", "interactive")
    return "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in shells


def git_revision() -> str | None:
    """Return the commit of this checkout, with ``+dirty`` if source or configs were changed."""
    revision = _git("rev-parse", "HEAD")
    if revision is None:
        return None
    return (
        f"{revision}+dirty" if _git("status", "--porcelain", "--", "src", "configs") else revision
    )


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parents[3]
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    """Return the versions of installed packages and, with a GPU, of its libraries."""
    found = {name: version for name in _PACKAGES if (version := _version(name))}
    if torch.cuda.device_count():
        # Some builds have no cuDNN; those for AMD GPUs have no CUDA.
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        libraries = {"cuda": torch.version.cuda, "cudnn": cudnn}
        found |= {name: str(version) for name, version in libraries.items() if version}
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"
