"""The launcher of ``cluster=...``, where Hydra looks for one: in ``hydra_plugins``.

Hydra's launchers for submitit and joblib request the same GPUs for every row, wait in the terminal
for jobs that take days, and exit with 0 when one of them failed. Every Hydra application of this
environment imports this module, so torch is imported only when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class ClusterLauncher(Launcher):
    """Turns each row of a table, or study of a suite, into a command of the present script."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what is needed to compose a row."""
        self._compose, self._config = hydra_context.config_loader.load_sweep_config, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Print, run or submit the commands; exits with 1 if one failed."""
        from phantomgrad_suite.cluster import local, slurm
        from phantomgrad_suite.cluster.command import Command, runs_folder
        from phantomgrad_suite.runs.errors import UserError

        settings, script = self._config.cluster, Path(sys.argv[0])
        if settings.kind == "local":
            local.prepare(settings)  # goes on while the rows are composed
        try:
            commands = [
                Command.of(self._compose(self._config, list(overrides)), overrides)
                for overrides in job_overrides
            ]
            if settings.kind == "list":
                print(*(command.line(script) for command in commands), sep="\n", flush=True)
            elif settings.kind == "local":
                local.run_all(commands, settings, script.resolve())
            else:
                logs = runs_folder(self._config) / ".cluster"
                slurm.submit(commands, settings, script.resolve(), logs)
        except UserError as error:
            sys.exit(str(error))
        return []
