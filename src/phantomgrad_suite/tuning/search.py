"""The settings of a search, and the proposals that follow from its finished trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record

_DRAWS = 100  # until a proposal is new: a repeated trial would add nothing


@dataclass(frozen=True, kw_only=True)
class Search:
    """The settings of a search, as in ``configs/tune``.

    Attributes:
        objective: a curve of the validation part; the best epoch of a run counts.
        direction: ``minimize`` or ``maximize``.
        trials: their number in all.
        startup: the number of random trials before the sampler (TPE) starts.
        step: between the values of an interval.
        first: the first trials, by their settings; those outside of the space are skipped.
        seed: of the proposals.

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
                raise UserError(f"tune.{name} must be {rule}, got {getattr(self, name)!r}")

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
            raise UserError(f"tune.objective must be one of {known}, got {self.objective!r}")
        finite = [value for value in curve if value is not None and math.isfinite(value)]
        return (min if self.direction == "minimize" else max)(finite, default=None)

    def best(self, trials: Sequence[FrozenTrial]) -> FrozenTrial:
        """Return the best trial; of equal ones the first."""
        sign = 1 if self.direction == "minimize" else -1
        return min(trials, key=lambda trial: sign * trial.values[0])

    def propose(
        self, position: int, space: dict[str, BaseDistribution], trials: Sequence[FrozenTrial]
    ) -> dict[str, Any]:
        """Return the settings of the trial at ``position``, from 0.

        They depend only on the seed of the search, the position and the finished ``trials``
        before it, so that a search that was killed proposes the same trials again.
        """
        seed = np.random.SeedSequence([self.seed, position]).generate_state(1)[0]
        sampler = optuna.samplers.TPESampler(seed=int(seed), n_startup_trials=self.startup)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=sampler, direction=self.direction)
        study.add_trials(trials)
        first = [params for params in self.first or () if _within(params, space)]
        if position < len(first):
            study.enqueue_trial(first[position])
        tried = [trial.params for trial in trials]
        for _ in range(_DRAWS):
            params = study.ask(space).params
            if params not in tried:
                break
        return params


def _within(params: dict[str, Any], space: dict[str, BaseDistribution]) -> bool:
    return all(
        key in space and space[key]._contains(space[key].to_internal_repr(value))
        for key, value in params.items()
    )
