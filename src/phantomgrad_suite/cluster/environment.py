"""What Lightning is told of SLURM."""

from __future__ import annotations

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment


def slurm_environment() -> list[SLURMEnvironment]:
    """Return SLURM's environment where it has started this process, requeueing nothing.

    Requeueing is left to who has submitted the job. Lightning's own way would leave a checkpoint in
    the working directory, for any row that starts there next.
    """
    if TorchElasticEnvironment.detect() or not SLURMEnvironment.detect():
        return []
    return [SLURMEnvironment(auto_requeue=False)]
