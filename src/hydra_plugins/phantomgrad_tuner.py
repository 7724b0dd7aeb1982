"""The sweeper of ``tune=...``; Hydra looks for sweepers in ``hydra_plugins``.

Hydra's own plugin for Optuna needs a version before 3, does not keep started runs, and proposes
other trials after a restart. Every Hydra application imports this module, so it imports little.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class Tuner(Sweeper):
    """Searches what is swept; ``params`` are overrides, which the command line replaces.

    ``max_batch_size`` belongs to Hydra's own sweeper and is not used.
    """

    def __init__(self, params: Mapping[str, Any], max_batch_size: int | None = None) -> None:
        self._params = [f"{key}={value}" for key, value in params.items()]

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what composes and launches a run."""
        self._loader, self._config = hydra_context.config_loader, config
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Do the remaining trials; exit with a message if the search cannot go on."""
        from phantomgrad_suite.runs.errors import UserError

        try:
            from phantomgrad_suite.tuning import tune
        except ModuleNotFoundError as error:
            sys.exit(
                f"tune needs the package {error.name}: pip install -e '.[tune]' in the checkout"
            )
        parser = OverridesParser.create(config_loader=self._loader)
        try:
            overrides = parser.parse_overrides([*self._params, *arguments])
            tune(overrides, partial(self._loader.load_sweep_config, self._config), self._launcher)
        except (UserError, HydraException) as error:
            sys.exit(str(error).splitlines()[0])
