"""What a search varies: the settings that are searched, and the seeds and folds of each trial."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import IntervalSweep, Override

from phantomgrad_suite.runs.errors import UserError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

REPEATED = ("seed", "dataset.fold")
"""The settings whose values do not make another trial, but another run of each."""


@dataclass(frozen=True)
class Plan:
    """Overrides, sorted by what they are for.

    Attributes:
        fixed: of every run.
        repeats: of each run of a trial.
        searched: the sweeps over what is searched.
    """

    fixed: tuple[str, ...]
    repeats: tuple[tuple[str, ...], ...]
    searched: tuple[Override, ...]

    @classmethod
    def of(cls, overrides: Sequence[Override]) -> Plan:
        """Sort ``overrides``; of several for one setting the last one counts.

        Raises:
            UserError: nothing is to be searched, or something that cannot be.
        """
        chosen = {override.get_key_element(): override for override in overrides}
        swept = {key: o for key, o in chosen.items() if o.is_sweep_override()}
        searched = tuple(o for key, o in swept.items() if key not in REPEATED)
        if "experiment" in swept:
            raise UserError("tune searches settings of one experiment, got several experiments")
        if not searched:
            raise UserError(
                "tune has nothing to search: sweep a setting, as in "
                "gradient.damping='interval(0.1,1.0)' or gradient.steps=1,3,5,9"
            )
        values = [_assigned(o) for key, o in swept.items() if key in REPEATED]
        return cls(
            fixed=tuple(
                f"{key}={o.get_value_element_as_str()}"
                for key, o in chosen.items()
                if key not in swept
            ),
            repeats=tuple(itertools.product(*values)),
            searched=searched,
        )

    def space(self, step: float) -> dict[str, BaseDistribution]:
        """Return Optuna's distribution of each setting that is searched.

        Args:
            step: between the values of an interval.

        Raises:
            UserError: a sweep cannot be searched in such steps, or not at all.
        """
        return {o.get_key_element(): _distribution(o, step) for o in self.searched}

    def corner(self) -> dict[str, Any]:
        """Return the first value of each setting that is searched."""
        return {o.get_key_element(): _first(o) for o in self.searched}

    def runs(self, params: Mapping[str, Any]) -> list[list[str]]:
        """Return the overrides of each run of a trial.

        Args:
            params: the value of each setting that is searched.
        """
        own = [f"{key}={text(value)}" for key, value in params.items()]
        return [[*self.fixed, *own, *repeat] for repeat in self.repeats]


def text(value: Any) -> str:
    """Return a value as an override has it: of a sum of steps no more digits than were meant."""
    return repr(round(value, 10)) if isinstance(value, float) else str(value)


def within(params: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> bool:
    """Return whether each of ``params`` is a value of its distribution."""
    return all(
        key in space and space[key]._contains(space[key].to_internal_repr(value))
        for key, value in params.items()
    )


def _first(override: Override) -> Any:
    if override.is_discrete_sweep():
        return next(iter(override.sweep_string_iterator()))
    interval = override.value()
    assert isinstance(interval, IntervalSweep)
    return interval.start


def _assigned(override: Override) -> list[str]:
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line} cannot be repeated over: list the values")
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _distribution(override: Override, step: float) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if override.is_discrete_sweep():
        return CategoricalDistribution(tuple(override.sweep_string_iterator()))
    sweep, key = override.value(), override.get_key_element()
    assert isinstance(sweep, IntervalSweep)
    assert sweep.start is not None
    assert sweep.end is not None
    low, high = float(sweep.start), float(sweep.end)
    steps = (high - low) / step
    if not low < high or abs(steps - round(steps)) > 1e-6:
        raise UserError(f"tune.step must divide the interval of {key}, {low} to {high}, got {step}")
    return FloatDistribution(low, high, step=step)
