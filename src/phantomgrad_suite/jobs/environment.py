"""What a run was run with: revision, versions, hardware."""

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
        device: that is used; an accelerator that is merely there is not named.
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
    """Return whether this is the first process of a distributed run, or the only one of a run."""
    if "RANK" in os.environ:
        ranks: tuple[str, ...] = ("RANK",)
    elif _started_by_slurm():
        ranks = ("SLURM_PROCID",)
    else:
        ranks = ("NODE_RANK", "LOCAL_RANK")
    return all(int(os.environ.get(name, "0")) == 0 for name in ranks)


def own_device(accelerator: str) -> torch.device:
    """Return the device that this process will train on, before there is a trainer to ask."""
    if accelerator == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    local = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0
    seen = torch.cuda.device_count()  # one, where each process is shown its own alone
    return torch.device("cuda", max(0, min(int(local), seen - 1)))


def launched_from_outside() -> bool:
    """Return whether torchrun or srun has started all processes of a distributed run."""
    tasks = int(os.environ.get("SLURM_NTASKS", "1"))  # 1 also in a batch script without srun
    return "TORCHELASTIC_RUN_ID" in os.environ or (_started_by_slurm() and tasks > 1)


def _started_by_slurm() -> bool:
    """Return whether Lightning takes the processes for SLURM's.

    In an interactive shell it starts them itself, and all of them inherit the shell's SLURM_PROCID.
    """
    shells = ("bash", "interactive")
    return "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in shells


def git_revision() -> str | None:
    """Return the commit this package is run from, ``+dirty`` if its code was changed since."""
    folder = Path(__file__).resolve().parents[3]
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--", "src", "configs")
    return f"{revision}+dirty" if changed else revision


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    """Return the versions of the packages that are there, and with a GPU those of its libraries."""
    found = {name: version for name in _PACKAGES if (version := _version(name))}
    if torch.cuda.device_count():
        # cuDNN's is None in a build without it; a build for AMD's GPUs has no CUDA.
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
