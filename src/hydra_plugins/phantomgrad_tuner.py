"""The sweeper behind ``tune=...``, where Hydra looks for one: in ``hydra_plugins``.

Hydra's own plugin for Optuna asks for a version before 3, whose files of studies current releases
of SQLAlchemy do not open; it keeps no run that was begun, and proposes anew after a restart.
Every Hydra application of this environment imports this module, so Optuna is left for later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class Tuner(Sweeper):
    """Searches what is swept; the runs of each trial are launched as those of a table.

    Args:
        params: overrides, as of Hydra's own sweeper; the command line's replace them.
        max_batch_size: of Hydra's own sweeper; here the runs of one trial make a batch.
    """

    def __init__(
        self, params: Mapping[str, Any] | None = None, max_batch_size: int | None = None
    ) -> None:
        self._params = dict(params or {})

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what is needed to compose a run and to launch it."""
        self._loader, self._config = hydra_context.config_loader, config
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Do the trials that are left; ends the process with 1 if the search cannot go on."""
        from phantomgrad_suite.runs.errors import UserError
        from phantomgrad_suite.tuning import tune

        swept = [*(f"{key}={value}" for key, value in self._params.items()), *arguments]
        parser = OverridesParser.create(config_loader=self._loader)
        try:
            tune(parser.parse_overrides(swept), self._compose, self._launch)
        except (UserError, HydraException) as error:
            sys.exit(str(error).splitlines()[0])

    def _compose(self, overrides: list[str]) -> DictConfig:
        return self._loader.load_sweep_config(self._config, overrides)

    def _launch(self, runs: list[list[str]], first: int) -> None:
        for result in self._launcher.launch(runs, initial_job_idx=first):
            _ = result.return_value  # raises what the run has raised
