"""Settings chosen on validation data by Optuna (``tune=lambda``); each trial is ordinary runs."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import Trial, TrialState

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.jobs.build import build_data
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.records import Record, RecordError, read_record

Compose = Callable[[list[str]], DictConfig]
Space = dict[str, BaseDistribution]
_DRAWS = 100  # until a proposal is new: a repeated trial would add nothing


@dataclass(frozen=True)
class SearchPlan:
    """The overrides of a search: of every run, of each run of a trial, and the searched sweeps."""

    fixed: tuple[str, ...]
    repeats: tuple[tuple[str, ...], ...]
    searched: tuple[Override, ...]

    @classmethod
    def of(cls, overrides: Sequence[Override]) -> SearchPlan:
        """Sort ``overrides``; of several for one setting the last one counts."""
        fixed, repeats, searched = [], [], []
        for key, override in {o.get_key_element(): o for o in overrides}.items():
            if not override.is_sweep_override():
                fixed.append(f"{key}={override.get_value_element_as_str()}")
            elif key == "experiment":
                raise UserError("tune searches settings of one experiment, got several experiments")
            elif key not in ("seed", "dataset.fold"):
                searched.append(override)
            elif override.is_discrete_sweep():
                repeats.append([f"{key}={value}" for value in override.sweep_string_iterator()])
            else:
                raise UserError(f"{override.input_line} cannot be repeated over: list the values")
        if not searched:
            raise UserError(
                "tune has nothing to search: sweep a setting, as in "
                "gradient.damping='interval(0.1,1.0)' or gradient.steps=1,3,5,9"
            )
        return cls(tuple(fixed), tuple(itertools.product(*repeats)), tuple(searched))

    def space(self, step: float) -> Space:
        """Return the distribution of each searched setting; intervals are searched in steps."""
        return {o.get_key_element(): _distribution(o, step) for o in self.searched}

    def runs(self, params: Mapping[str, Any]) -> list[list[str]]:
        """Return the overrides of each run of a trial with these values."""
        own = [f"{key}={format_value(value)}" for key, value in params.items()]
        return [[*self.fixed, *own, *repeat] for repeat in self.repeats]


def tune(overrides: Sequence[Override], compose: Compose, launcher: Launcher) -> None:
    """Search the settings that ``overrides`` sweep; runs that have a record are not repeated.

    ``compose`` returns the configuration of a run, with Hydra's own part, from its overrides.
    A :class:`UserError` says why a search cannot be done; finished runs are kept.
    """
    plan = SearchPlan.of(overrides)
    config = compose([*plan.fixed, *plan.repeats[0]])
    HydraConfig.instance().set_config(config)
    kind = (config.runtime.get("cluster") or {}).get("kind", "local")
    if kind != "local":
        raise UserError(f"tune waits for its runs: use cluster=local or none, got cluster={kind}")
    if "validation" not in build_data(config).evaluation_sets:
        raise UserError(
            f"tune needs a validation part, and {config.dataset.get('name')} has none as it is "
            "set: dataset.split=stratified (TU graphs), +dataset.validation=5000 (images) or "
            "+dataset.validation_share=0.1 (texts) makes one"
        )
    settings = config.runtime.tune
    try:
        search = Search(settings, plan.space(settings.step))
    except (TypeError, ValueError) as error:  # of Optuna and numpy
        raise UserError(f"runtime.tune: {str(error).splitlines()[0]}") from error
    row = config.hydra.runtime.choices.get("experiment") or "custom"
    folder = RunFolder(Path(config.runtime.paths.runs) / "tune" / row)
    with folder.locked() as locked:
        if not locked:
            raise UserError(f"another process runs the search in {folder.path}")
        _run_trials(plan, search, compose, launcher)


def _run_trials(plan: SearchPlan, search: Search, compose: Compose, launcher: Launcher) -> None:
    """Run the trials in order; a failed one is retried at the next start."""
    trials, best = search.settings.trials, ""
    for position in range(trials):
        trial = search.propose(position)
        title = f"trial {position + 1} of {trials}, {_listed(trial.params)}"
        values = _run(plan.runs(trial.params), search, compose, launcher)
        finite = [value for value in values if value is not None]
        if len(finite) == len(values):
            value = statistics.fmean(finite)
            search.study.tell(trial, value)
            best = (
                f"best {search.settings.objective} {search.study.best_value:.5g} "
                f"at {_listed(search.study.best_params)}"
            )
            print(f"{title}: {value:.5g}; {best}", flush=True)
        elif best:
            search.study.tell(trial, state=TrialState.FAIL)
            print(f"{title}: failed, see above; the same command tries it again", flush=True)
        else:
            raise UserError(f"{title}: the first trial has failed, see above")
    print(f"{len(search.finished())} trials, {best}", flush=True)


class Search:
    """Optuna's study of a search, with the settings that ``configs/tune`` explains."""

    def __init__(self, settings: Any, space: Space) -> None:
        if not settings.objective.startswith("validation/"):
            raise ValueError(f"objective must be of validation/, got {settings.objective!r}")
        if settings.trials < 1:
            raise ValueError(f"trials must be at least 1, got {settings.trials}")
        if settings.direction not in ("minimize", "maximize"):
            raise ValueError(f"direction must be minimize or maximize, got {settings.direction!r}")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.settings, self._space = settings, space
        self.study = optuna.create_study(direction=settings.direction)
        self._first = [dict(params) for params in settings.first or () if _within(params, space)]

    def propose(self, position: int) -> Trial:
        """Return the trial at ``position``, counted from 0.

        It depends only on the seed, the position and the finished trials, so that a search that was
        killed proposes the same trials again.
        """
        seed = np.random.SeedSequence([self.settings.seed, position]).generate_state(1)[0]
        self.study.sampler = optuna.samplers.TPESampler(
            seed=int(seed), n_startup_trials=self.settings.startup
        )
        if position < len(self._first):
            self.study.enqueue_trial(self._first[position])
        tried = [finished.params for finished in self.finished()]
        for _ in range(_DRAWS):
            trial = self.study.ask(self._space)
            if trial.params not in tried:
                break
        return trial

    def finished(self) -> list[Any]:
        """Return the trials that have a value."""
        return self.study.get_trials(states=[TrialState.COMPLETE])

    def value(self, record: Record) -> float | None:
        """Return the objective of a run at its best epoch, ``None`` if it was never finite."""
        curve = record.curves.get(self.settings.objective)
        if curve is None:
            known = ", ".join(name for name in record.curves if name.startswith("validation/"))
            raise UserError(
                f"runtime.tune.objective must be one of {known}, got {self.settings.objective!r}"
            )
        finite = [value for value in curve if value is not None and math.isfinite(value)]
        return (min if self.settings.direction == "minimize" else max)(finite, default=None)


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


def format_value(value: Any) -> str:
    """Return a value as an override has it, floats without the rounding errors of steps."""
    return repr(round(value, 10)) if isinstance(value, float) else str(value)


def _listed(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={format_value(value)}" for key, value in params.items())


def _distribution(override: Override, step: float) -> BaseDistribution:
    if override.is_discrete_sweep():
        return CategoricalDistribution(tuple(override.sweep_string_iterator()))
    sweep, key = override.value(), override.get_key_element()
    assert isinstance(sweep, IntervalSweep)
    low, high = float(sweep.start or 0), float(sweep.end or 0)
    if step <= 0 or abs(math.remainder(high - low, step)) > 1e-6 * step:
        raise ValueError(f"step must divide the interval of {key}, {low} to {high}, got {step}")
    return FloatDistribution(low, high, step=step)


def _within(params: Mapping[str, Any], space: Space) -> bool:
    return all(
        key in space and space[key]._contains(space[key].to_internal_repr(value))
        for key, value in params.items()
    )
