"""A search: the overrides it varies, its settings, and the proposals that follow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optuna
from hydra.core.override_parser.types import IntervalSweep, Override
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record

_DRAWS = 100  # until a proposal is new: a repeated trial would add nothing


@dataclass(frozen=True)
class SearchPlan:
    """The overrides of a search: of every run, of each run of a trial, and the searched sweeps."""

    fixed: tuple[str, ...]
    repeats: tuple[tuple[str, ...], ...]
    searched: tuple[Override, ...]

    @classmethod
    def of(cls, overrides: Sequence[Override]) -> SearchPlan:
        """Sort ``overrides``; of several for one setting the last one counts.

        Raises:
            UserError: nothing is searched, or something that cannot be.
        """
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

    def space(self, step: float) -> dict[str, BaseDistribution]:
        """Return the distribution of each searched setting; intervals are searched in steps.

        Raises:
            UserError: ``step`` does not divide an interval.
        """
        return {o.get_key_element(): _distribution(o, step) for o in self.searched}

    def runs(self, params: Mapping[str, Any]) -> list[list[str]]:
        """Return the overrides of each run of a trial with these values."""
        own = [f"{key}={format_value(value)}" for key, value in params.items()]
        return [[*self.fixed, *own, *repeat] for repeat in self.repeats]


@dataclass(frozen=True, kw_only=True)
class Search:
    """The settings of a search, as in ``configs/tune``, where they are explained.

    Raises:
        UserError: a setting is out of range.
    """

    objective: str
    direction: Literal["minimize", "maximize"]
    trials: int
    startup: int
    step: float
    first: list[dict[str, Any]] | None
    seed: int

    def __post_init__(self) -> None:
        def check(name: str, valid: bool, rule: str) -> None:
            if not valid:
                raise UserError(f"runtime.tune.{name} must be {rule}, got {getattr(self, name)!r}")

        validation = self.objective.startswith("validation/")
        check("objective", validation, "of the validation part, such as validation/loss")
        check("direction", self.direction in ("minimize", "maximize"), "minimize or maximize")
        check("step", isinstance(self.step, int | float) and self.step > 0, "a positive number")
        for name, least in (("trials", 1), ("startup", 1), ("seed", 0)):
            value = getattr(self, name)
            check(name, isinstance(value, int) and value >= least, f"an integer from {least}")

    def value(self, record: Record) -> float | None:
        """Return the objective of a run at its best epoch, ``None`` if it was never finite.

        Raises:
            UserError: the run has no such curve.
        """
        curve = record.curves.get(self.objective)
        if curve is None:
            known = ", ".join(name for name in record.curves if name.startswith("validation/"))
            raise UserError(
                f"runtime.tune.objective must be one of {known}, got {self.objective!r}"
            )
        finite = [value for value in curve if value is not None and math.isfinite(value)]
        return (min if self.direction == "minimize" else max)(finite, default=None)

    def propose(
        self, position: int, space: dict[str, BaseDistribution], finished: Sequence[FrozenTrial]
    ) -> dict[str, Any]:
        """Return the settings of the trial at ``position``, counted from 0.

        They depend only on the seed of the search, the position and the finished trials, so that
        a search that was killed proposes the same trials again.
        """
        seed = np.random.SeedSequence([self.seed, position]).generate_state(1)[0]
        sampler = optuna.samplers.TPESampler(seed=int(seed), n_startup_trials=self.startup)
        study = optuna.create_study(sampler=sampler, direction=self.direction)
        study.add_trials(finished)
        first = [params for params in self.first or () if _within(params, space)]
        if position < len(first):
            study.enqueue_trial(first[position])
        tried = [trial.params for trial in finished]
        for _ in range(_DRAWS):
            params = study.ask(space).params
            if params not in tried:
                break
        return params


def format_value(value: Any) -> str:
    """Return a value as an override has it, floats without the rounding errors of steps."""
    return repr(round(value, 10)) if isinstance(value, float) else str(value)


def _distribution(override: Override, step: float) -> BaseDistribution:
    if override.is_discrete_sweep():
        return CategoricalDistribution(tuple(override.sweep_string_iterator()))
    sweep, key = override.value(), override.get_key_element()
    assert isinstance(sweep, IntervalSweep)
    low, high = float(sweep.start or 0), float(sweep.end or 0)
    steps = (high - low) / step
    if not low < high or abs(steps - round(steps)) > 1e-6:
        raise UserError(
            f"runtime.tune.step must divide the interval of {key}, {low} to {high}, got {step}"
        )
    return FloatDistribution(low, high, step=step)


def _within(params: dict[str, Any], space: dict[str, BaseDistribution]) -> bool:
    return all(
        key in space and space[key]._contains(space[key].to_internal_repr(value))
        for key, value in params.items()
    )
