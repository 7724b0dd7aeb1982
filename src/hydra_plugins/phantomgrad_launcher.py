"""The launcher behind ``cluster=...``, where Hydra looks for one: in ``hydra_plugins``.

Hydra's launchers of submitit and joblib ask for the same GPUs for every row, wait in the terminal
for jobs that take days, and end with exit code 0 when one of them has failed.
Every Hydra application of this environment imports this module, so torch is left for later.
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
    """Makes a command of each row of a table, and has it done as ``cluster`` says."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what is needed to compose a row."""
        self._compose, self._config = hydra_context.config_loader.load_sweep_config, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Start, submit or print the runs; ends the process with 1 if one has failed."""
        from phantomgrad_suite.cluster import Command, launch
        from phantomgrad_suite.runs.errors import UserError

        try:
            commands = [
                Command.of(self._compose(self._config, list(overrides)), overrides)
                for overrides in job_overrides
            ]
            launch(commands, self._config.runtime.cluster, Path(self._config.runtime.paths.runs))
        except UserError as error:
            sys.exit(str(error))
        return []
