"""What a run was run with: revision, versions, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "lightning", "hydra-core", "torch-geometric", "numpy", "scikit-learn")


def describe_environment() -> dict[str, Any]:
    """Return git revision, versions, processor, threads and accelerator."""
    return {
        "git": git_revision(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "system": platform.system(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def process_rank() -> int:
    """Return the rank of this process in a distributed run, 0 outside of one."""
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def launched_from_outside() -> bool:
    """Return whether torchrun or srun has started all processes of a distributed run."""
    tasks = int(os.environ.get("SLURM_NTASKS", "1"))  # 1 also in a batch script without srun
    return "TORCHELASTIC_RUN_ID" in os.environ or tasks > 1


def git_revision() -> str | None:
    """Return the commit this package is run from, ``+dirty`` if its code was changed since."""
    folder = Path(__file__).parent
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--", ".", "../../configs")
    return f"{revision}+dirty" if changed else revision


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


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
