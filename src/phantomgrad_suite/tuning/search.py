"""The search: what was tried, in a file of Optuna's, and what is tried next."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import optuna
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from phantomgrad.checks import check_at_least
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record
from phantomgrad_suite.tuning.space import within

_POSITION = "position"
_DRAWS = 100  # until a proposal is new: what was run already would tell nothing


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to search, as ``configs/tune`` has it.

    Attributes:
        objective: a curve of the validation part; a run counts by its best epoch.
        direction: ``minimize`` or ``maximize``.
        trials: how many are done in all.
        startup: so many are spread at random before the sampler (TPE) begins.
        step: between the values of an interval.
        first: trials that come first, by their settings; those outside the space are left out.
        seed: of the proposals.

    Raises:
        UserError: ``objective`` is of another part, or ``direction`` another word.
        ValueError: a number is too small.
    """

    objective: str
    direction: Literal["minimize", "maximize"]
    trials: int
    startup: int
    step: float
    first: tuple[dict[str, Any], ...]
    seed: int

    def __post_init__(self) -> None:
        if not self.objective.startswith("validation/"):
            raise UserError(
                f"tune.objective must be of the validation part (validation/loss, "
                f"validation/accuracy ...), got {self.objective!r}"
            )
        if self.direction not in ("minimize", "maximize"):
            raise UserError(f"tune.direction must be minimize or maximize, got {self.direction!r}")
        for name, least in (("trials", 1), ("startup", 1), ("seed", 0)):
            check_at_least(f"tune.{name}", getattr(self, name), least)
        if not self.step > 0:
            raise ValueError(f"tune.step must be positive, got {self.step}")

    @classmethod
    def of(cls, node: DictConfig) -> Search:
        """Make it of the configuration ``tune``; see the class for what is refused."""
        settings: Any = OmegaConf.to_container(node, resolve=True)
        try:
            return cls(**{**settings, "first": tuple(settings["first"] or ())})
        except ValueError as error:
            raise UserError(str(error)) from error

    def value(self, record: Record) -> float | None:
        """Return the objective of a run, of its best epoch; ``None`` where it never was finite.

        Raises:
            UserError: the run has no such curve.
        """
        curve = record.curves.get(self.objective)
        if curve is None:
            known = [name for name in record.curves if name.startswith("validation/")]
            raise UserError(
                f"tune.objective must be one of {', '.join(known)}, got {self.objective!r}"
            )
        best = {"minimize": min, "maximize": max}[self.direction]
        return best((v for v in curve if v is not None and np.isfinite(v)), default=None)


class Trial(NamedTuple):
    """A finished trial: its place among all, its settings and the mean of its runs."""

    position: int
    params: dict[str, Any]
    value: float


class Study:
    """Finished trials, in a file, and the proposals that follow from them.

    A proposal is a function of the search's seed, its position and the finished trials before it.
    So a search that was killed proposes what it was at; and without its file, from the runs that
    are done, it comes back to where it was.

    Args:
        path: of the file.
        search: how to search.
        space: the distribution of each setting.
        identity: of everything else that decides about the values.

    Raises:
        UserError: the file cannot be read.
    """

    def __init__(
        self, path: Path, search: Search, space: dict[str, BaseDistribution], identity: Any
    ) -> None:
        self._search, self._space = search, space
        self._first = [params for params in search.first if within(params, space)]
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(path))),
                study_name=_name(search, space, identity),
                direction=search.direction,
                load_if_exists=True,
            )
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{path} is no readable study ({error}): delete it and start the same command "
                "again; no run that is done is done twice"
            ) from error

    @property
    def trials(self) -> list[Trial]:
        """The finished ones, by position."""
        found = [Trial(t.user_attrs[_POSITION], t.params, t.values[0]) for t in self._frozen]
        return sorted(found, key=lambda trial: trial.position)

    @property
    def best(self) -> Trial | None:
        """The best one; of equals, the first."""
        good = {"minimize": 1, "maximize": -1}[self._search.direction]
        return min(self.trials, key=lambda trial: good * trial.value, default=None)

    def propose(self, position: int) -> dict[str, Any]:
        """Return the settings of the trial at ``position``, from 0."""
        seed = np.random.SeedSequence([self._search.seed, position]).generate_state(1)[0]
        sampler = optuna.samplers.TPESampler(seed=int(seed), n_startup_trials=self._search.startup)
        study = optuna.create_study(sampler=sampler, direction=self._search.direction)
        study.add_trials(t for t in self._frozen if t.user_attrs[_POSITION] < position)
        if position < len(self._first):
            study.enqueue_trial(self._first[position])
        tried = [trial.params for trial in study.trials if trial.state.is_finished()]
        params: dict[str, Any] = {}
        for _ in range(_DRAWS):
            params = study.ask(self._space).params
            if params not in tried:
                break
        return params

    def add(self, position: int, params: dict[str, Any], value: float) -> None:
        """Keep a finished trial."""
        trial = optuna.trial.create_trial(
            params=params,
            distributions=self._space,
            value=value,
            user_attrs={_POSITION: position},
        )
        self._study.add_trial(trial)

    @property
    def _frozen(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)


def _name(search: Search, space: Mapping[str, BaseDistribution], identity: Any) -> str:
    """Return a name by everything that decides about proposals and values, but the number."""
    settings = {key: value for key, value in asdict(search).items() if key != "trials"}
    ranges = {key: str(distribution) for key, distribution in space.items()}
    content = json.dumps([settings, ranges, identity], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
