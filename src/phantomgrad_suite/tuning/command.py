"""A search from its overrides: each trial is proposed, run and evaluated in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.jobs.build import build_data
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.records import RecordError, read_record
from phantomgrad_suite.tuning.search import Search, SearchPlan, format_value

Compose = Callable[[list[str]], DictConfig]


def tune(overrides: Sequence[Override], compose: Compose, launcher: Launcher) -> None:
    """Search the settings that ``overrides`` sweep; runs that have a record are not repeated.

    Args:
        overrides: of ``configs/tune`` and of the command line.
        compose: returns the configuration of a run, with Hydra's own part, from its overrides.
        launcher: does the runs.

    Raises:
        UserError: the search cannot be done; finished runs are kept.
    """
    plan = SearchPlan.of(overrides)
    config = compose([*plan.fixed, *plan.repeats[0]])
    HydraConfig.instance().set_config(config)
    _check_runs(config)
    settings: Any = OmegaConf.to_container(config.runtime.tune, resolve=True)
    search = Search(**settings)
    row = config.hydra.runtime.choices.get("experiment") or "custom"
    folder = RunFolder(Path(config.runtime.paths.runs) / "tune" / row)
    with folder.locked() as locked:
        if not locked:
            raise UserError(f"another process runs the search in {folder.path}")
        _do_trials(plan, search, compose, launcher)


def _do_trials(plan: SearchPlan, search: Search, compose: Compose, launcher: Launcher) -> None:
    """Do the trials in order; one that fails is left for the next start."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study, space = optuna.create_study(direction=search.direction), plan.space(search.step)
    best = ""
    for position in range(search.trials):
        params = search.propose(position, space, study.trials)
        title = f"trial {position + 1} of {search.trials}, {_listed(params)}"
        values = _run(plan.runs(params), search, compose, launcher)
        finite = [value for value in values if value is not None]
        if len(finite) == len(values):
            value = statistics.fmean(finite)
            study.add_trial(optuna.create_trial(params=params, distributions=space, value=value))
            best = f"best {search.objective} {study.best_value:.5g} at {_listed(study.best_params)}"
            print(f"{title}: {value:.5g}; {best}", flush=True)
        elif study.trials:
            print(f"{title}: failed, see above; the same command tries it again", flush=True)
        else:
            raise UserError(f"{title}: the first trial has failed, see above")
    print(f"{len(study.trials)} trials, {best}", flush=True)


def _run(
    runs: list[list[str]], search: Search, compose: Compose, launcher: Launcher
) -> list[float | None]:
    """Return the objective of each run, ``None`` for one that has failed."""

    def objective(command: Command) -> float | None:
        with suppress(RecordError):
            record = read_record(RunFolder(command.folder).record)
            if record.config_hash == command.config_hash:
                return search.value(record)
        return None

    commands = [Command.of(compose(run), run) for run in runs]
    left = [run for run, c in zip(runs, commands, strict=True) if objective(c) is None]
    if left:
        for result in launcher.launch(left, initial_job_idx=0):
            _ = result.return_value  # raises the error of the run
    return [objective(command) for command in commands]


def _listed(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={format_value(value)}" for key, value in params.items())


def _check_runs(config: DictConfig) -> None:
    """Raise before anything is trained if runs are not waited for or cannot be validated."""
    kind = (config.runtime.get("cluster") or {}).get("kind", "local")
    if kind != "local":
        raise UserError(f"tune waits for its runs: use cluster=local or none, got cluster={kind}")
    if "validation" not in build_data(config).evaluation_sets:
        raise UserError(
            f"tune needs a validation part, and {config.dataset.get('name')} has none as it is "
            "set: dataset.split=stratified (TU graphs), +dataset.validation=5000 (images) or "
            "+dataset.validation_share=0.1 (texts) makes one"
        )
