"""A search from its overrides: each trial is proposed, run and evaluated in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from optuna.trial import FrozenTrial

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.jobs.build import build
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.records import read_record
from phantomgrad_suite.tuning.plan import SearchPlan, format_value
from phantomgrad_suite.tuning.search import Search

Compose = Callable[[list[str]], DictConfig]
Launch = Callable[[list[list[str]]], None]


def tune(overrides: Sequence[Override], compose: Compose, launch: Launch) -> None:
    """Do the search that ``overrides`` describe; runs that have a record are not repeated.

    Args:
        overrides: of ``configs/tune`` and of the command line; what they sweep is searched.
        compose: returns the configuration of a run, with Hydra's own part, from its overrides.
        launch: does runs, given their overrides.

    Raises:
        UserError: something the user can put right; finished runs are kept.
    """
    plan = SearchPlan.of(overrides)
    config = compose([*plan.fixed, *plan.repeats[0]])
    HydraConfig.instance().set_config(config)
    _check_runs(config)
    settings: Any = OmegaConf.to_container(config.tune, resolve=True)
    search = Search(**settings)
    row = config.hydra.runtime.choices.get("experiment") or "custom"
    folder = RunFolder(Path(config.paths.runs) / "tune" / row)
    with folder.locked() as locked:
        if not locked:
            raise UserError(f"another process runs the search in {folder.path}")
        _do_trials(plan, search, compose, launch)


def _do_trials(plan: SearchPlan, search: Search, compose: Compose, launch: Launch) -> None:
    """Do the trials in order; one that fails is left for the next start."""
    space = plan.space(search.step)
    trials: list[FrozenTrial] = []
    best = ""
    for position in range(search.trials):
        params = search.propose(position, space, trials)
        title = f"trial {position + 1} of {search.trials}, {_listed(params)}"
        values = _run(plan.runs(params), search, compose, launch)
        finite = [value for value in values if value is not None]
        if len(finite) == len(values):
            value = statistics.fmean(finite)
            trials.append(optuna.create_trial(params=params, distributions=space, value=value))
            trial = search.best(trials)
            best = f"best {search.objective} {trial.values[0]:.5g} at {_listed(trial.params)}"
            print(f"{title}: {value:.5g}; {best}", flush=True)
        elif trials:
            print(f"{title}: failed, see above; the same command tries it again", flush=True)
        else:
            raise UserError(f"{title}: the first trial has failed, see above")
    print(f"{len(trials)} trials, {best}", flush=True)


def _run(
    runs: list[list[str]], search: Search, compose: Compose, launch: Launch
) -> list[float | None]:
    """Return the objective of each run, ``None`` for one that has failed."""
    commands = [Command.of(compose(run), run) for run in runs]
    values = [_objective(command, search) for command in commands]
    if None in values:
        launch([run for run, value in zip(runs, values, strict=True) if value is None])
        values = [_objective(command, search) for command in commands]
    return values


def _objective(command: Command, search: Search) -> float | None:
    path = RunFolder(command.folder).record
    record = read_record(path) if path.exists() else None
    if record is None or record.config_hash != command.config_hash:
        return None
    return search.value(record)


def _listed(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={format_value(value)}" for key, value in params.items())


def _check_runs(config: DictConfig) -> None:
    """Raise before anything is trained if runs are not waited for or cannot be validated."""
    kind = (config.get("cluster") or {}).get("kind", "local")
    if kind != "local":
        raise UserError(f"tune waits for its runs: use cluster=local or none, got cluster={kind}")
    data = build(config.dataset, "dataset")
    if "validation" not in data.evaluation_sets:
        raise UserError(
            f"tune needs a validation part, and {config.dataset.get('name')} has none as it is "
            "set: dataset.split=stratified (TU graphs), +dataset.validation=5000 (images) or "
            "+dataset.validation_share=0.1 (texts) makes one"
        )
