"""The launcher of ``cluster=...``, where Hydra looks for one: in ``hydra_plugins``.

Hydra's launchers for submitit and joblib request the same GPUs for every row, wait in the terminal
for jobs that take days, and exit with 0 when one of them failed. Every Hydra application of this
environment imports this module, so torch is imported only when it is used.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class ClusterLauncher(Launcher):
    """Turns each of several runs or studies into a command of the present script."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what is needed to compose a row."""
        self._compose, self._config = hydra_context.config_loader.load_sweep_config, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Print, run or submit the commands; a :class:`UserError` says that one failed."""
        from phantomgrad_suite.cluster.command import Command

        runtime, script = self._config.runtime, Path(sys.argv[0])
        if runtime.cluster.kind == "local":
            from phantomgrad_suite.cluster import local

            local.prepare(runtime.cluster)  # continues while the rows are composed
        commands = [
            Command.of(self._compose(self._config, list(overrides)), overrides)
            for overrides in job_overrides
        ]
        if runtime.cluster.kind == "list":
            print(*(command.line(script) for command in commands), sep="\n", flush=True)
        elif runtime.cluster.kind == "local":
            local.run_all(commands, runtime.cluster, script.resolve())
        else:
            from phantomgrad_suite.cluster import slurm

            logs = Path(runtime.paths.runs) / ".cluster"
            slurm.submit(commands, runtime.cluster, script.resolve(), logs)
        return []
