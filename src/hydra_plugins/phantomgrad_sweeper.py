"""The sweeper of rows and studies, where Hydra looks for one: in ``hydra_plugins``."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.runs.configs import sweep_of
from phantomgrad_suite.runs.errors import UserError

_REPEATED = re.compile(r"(seed|dataset\.fold)=(0|[1-9]\d*)")


class RowSweeper(BasicSweeper):
    """Hydra's own sweeper, which composes the runs of a row, in all seeds and folds, once.

    Hydra composes each run twice, to validate and to launch it: 0.1 s each, for 180 runs of
    ``table4``. Rows and studies may be patterns (:func:`.listed`). ``scales`` are the ``params`` of
    a table that differ with ``scale=...``.
    """

    def __init__(self, max_batch_size: int | None, params: Any = None, scales: Any = None) -> None:
        """Keep what a table sweeps."""
        super().__init__(max_batch_size, params)
        self.scales = scales or {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Give the launcher, too, a loader that remembers the rows."""
        scale = str(config.hydra.runtime.choices.get("scale"))
        self.params = sweep_of(self.params or {}, self.scales, scale)
        loader: Any = _OncePerRow(hydra_context.config_loader)
        context = HydraContext(config_loader=loader, callbacks=hydra_context.callbacks)
        super().setup(hydra_context=context, task_function=task_function, config=config)


class _OncePerRow:
    """Hydra's loader of configurations; seed and fold choose no file, so they are filled in."""

    def __init__(self, loader: Any) -> None:
        self._loader, self._rows = loader, dict[tuple[str, ...], DictConfig]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: Sequence[str]
    ) -> DictConfig:
        """Return the configuration of a run. ``hydra.job.override_dirname`` is the row's first."""
        overrides = list(sweep_overrides)
        repeated = {m[1]: m[0] for m in map(_REPEATED.fullmatch, overrides) if m}
        row = tuple(key if (key := o.partition("=")[0]) in repeated else o for o in overrides)
        if row not in self._rows:
            self._rows[row] = self._composed(master_config, overrides)
        config = copy.deepcopy(self._rows[row])
        for key, override in repeated.items():
            OmegaConf.update(config, key, int(override.partition("=")[2]))
        task = config.hydra.overrides.task
        config.hydra.overrides.task = [repeated.get(o.partition("=")[0], o) for o in task]
        return config

    def _composed(self, master_config: DictConfig, overrides: list[str]) -> DictConfig:
        """Return the configuration of a row; a :class:`UserError` names one that cannot be."""
        # Imported here: every Hydra application of this environment imports this module.
        from phantomgrad_suite.jobs.explain import explain

        try:
            config: DictConfig = self._loader.load_sweep_config(master_config, overrides)
        except HydraException as error:
            text = explain(error, str(master_config.hydra.job.config_name), overrides)
            chosen = (o.partition("=") for o in overrides)
            name = next((name for group, _, name in chosen if group in ("experiment", "study")), "")
            raise UserError(text if name in text else f"{name}: {text}") from error
        return config


_TARGET = f"{__name__}.{RowSweeper.__name__}"
ConfigStore.instance().store(
    group="hydra/sweeper",
    name="rows",
    node={"_target_": _TARGET, "max_batch_size": None, "params": None, "scales": None},
    provider="phantomgrad",
)
