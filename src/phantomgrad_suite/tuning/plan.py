"""The overrides of a search, sorted: what is searched, what repeats each trial, what is fixed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from phantomgrad_suite.runs.errors import UserError

_REPEATED = ("seed", "dataset.fold")  # swept, these give each trial several runs


@dataclass(frozen=True)
class SearchPlan:
    """The overrides of a search.

    Attributes:
        fixed: those of every run.
        repeats: those of each run of a trial.
        searched: the sweeps over the searched settings.
    """

    fixed: tuple[str, ...]
    repeats: tuple[tuple[str, ...], ...]
    searched: tuple[Override, ...]

    @classmethod
    def of(cls, overrides: Sequence[Override]) -> SearchPlan:
        """Sort ``overrides``; of several for one setting the last one counts.

        Raises:
            UserError: nothing is searched, or something that cannot be.
        """
        chosen = {override.get_key_element(): override for override in overrides}
        swept = {key: o for key, o in chosen.items() if o.is_sweep_override()}
        fixed = [
            f"{key}={o.get_value_element_as_str()}" for key, o in chosen.items() if key not in swept
        ]
        repeats = [_assignments(swept.pop(key)) for key in _REPEATED if key in swept]
        if "experiment" in swept:
            raise UserError("tune searches settings of one experiment, got several experiments")
        if not swept:
            raise UserError(
                "tune has nothing to search: sweep a setting, as in "
                "gradient.damping='interval(0.1,1.0)' or gradient.steps=1,3,5,9"
            )
        return cls(tuple(fixed), tuple(itertools.product(*repeats)), tuple(swept.values()))

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


def format_value(value: Any) -> str:
    """Return a value as an override has it, floats without the rounding errors of steps."""
    return repr(round(value, 10)) if isinstance(value, float) else str(value)


def _assignments(override: Override) -> list[str]:
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line} cannot be repeated over: list the values")
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _distribution(override: Override, step: float) -> BaseDistribution:
    if override.is_discrete_sweep():
        return CategoricalDistribution(tuple(override.sweep_string_iterator()))
    sweep, key = override.value(), override.get_key_element()
    assert isinstance(sweep, IntervalSweep)
    low, high = float(sweep.start or 0), float(sweep.end or 0)
    steps = (high - low) / step
    if not low < high or abs(steps - round(steps)) > 1e-6:
        raise UserError(f"tune.step must divide the interval of {key}, {low} to {high}, got {step}")
    return FloatDistribution(low, high, step=step)
