"""A search from its overrides: the trials that are left, each of them ordinary runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.jobs.build import build_data
from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.runs.records import read_record
from phantomgrad_suite.tuning.space import Plan, text

if TYPE_CHECKING:
    from phantomgrad_suite.tuning.search import Search, Study

Compose = Callable[[list[str]], DictConfig]
Launch = Callable[[list[list[str]], int], None]

JOURNAL = "study.journal"


def tune(overrides: Sequence[Override], compose: Compose, launch: Launch) -> None:
    """Do the trials that are left of the search that ``overrides`` describe.

    Args:
        overrides: of ``configs/tune`` and of the command line; what they sweep is searched.
        compose: makes the configuration of a run, Hydra's own part included, from its overrides.
        launch: does runs by their overrides; its second argument is the number of the first one.

    Raises:
        UserError: something the user can put right; what is done is kept.
    """
    _check_installed()
    from phantomgrad_suite.tuning.search import Search, Study

    plan = Plan.of(overrides)
    config = compose(plan.runs(plan.corner())[0])
    HydraConfig.instance().set_config(config)
    search = Search.of(config.runtime.tune)
    space = plan.space(search.step)
    _check_waits(config)
    _check_validated(config)
    folder = RunFolder(Path(config.runtime.paths.runs) / "tune" / _row(config))
    with folder.locked() as mine:
        if not mine:
            raise UserError(f"another process is at the search in {folder.path}")
        study = Study(folder.path / JOURNAL, search, space, _identity(config, plan))
        _Tuning(plan, search, study, compose, launch).finish()


@dataclass
class _Tuning:
    """The parts of a search."""

    plan: Plan
    search: Search
    study: Study
    compose: Compose
    launch: Launch
    launched: int = 0

    def finish(self) -> None:
        """Do the trials that are left, in order; one that fails is left for the next time."""
        done = {trial.position for trial in self.study.trials}
        for position in range(self.search.trials):
            if position in done:
                continue
            params = self.study.propose(position)
            values = self._values(params)
            title = f"trial {position + 1} of {self.search.trials}, {_listed(params)}"
            finite = [value for value in values if value is not None]
            if len(finite) == len(values):
                self.study.add(position, params, statistics.fmean(finite))
                _say(f"{title}: {statistics.fmean(finite):.5g}; {self._best()}")
            elif self.study.trials:
                _say(f"{title}: failed, see above; the same command tries it again")
            else:
                raise UserError(f"{title}: the first trial has failed, see above")
        _say(f"{len(self.study.trials)} trials, {self._best()}")

    def _values(self, params: Mapping[str, Any]) -> list[float | None]:
        """Return the objective of each run of a trial, ``None`` for one that has failed."""
        runs = self.plan.runs(params)
        commands = [Command.of(self.compose(run), run) for run in runs]
        self.launch(runs, self.launched)
        self.launched += len(runs)
        return [self._value(command) for command in commands]

    def _value(self, command: Command) -> float | None:
        path = RunFolder(command.folder).record
        record = read_record(path) if path.exists() else None
        if record is None or record.config_hash != command.config_hash:
            return None
        return self.search.value(record)

    def _best(self) -> str:
        best = self.study.best
        assert best is not None
        return f"best {self.search.objective} {best.value:.5g} at {_listed(best.params)}"


def _check_installed() -> None:
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(
            "tune needs the package optuna: pip install -e '.[tune]' in the checkout"
        ) from error


def _check_waits(config: DictConfig) -> None:
    kind = (config.runtime.get("cluster") or {}).get("kind", "local")
    if kind != "local":
        raise UserError(f"tune waits for its runs: use cluster=local or none, got cluster={kind}")


def _check_validated(config: DictConfig) -> None:
    """Refuse data without a validation part before anything is trained."""
    data = build_data(config)
    if "validation" not in data.evaluation_sets:
        name = config.dataset.get("name", type(data).__name__)
        raise UserError(
            f"tune needs a validation part, and {name} has none as it is set: "
            "dataset.split=stratified (TU graphs), +dataset.validation=5000 (images) or "
            "+dataset.validation_share=0.1 (texts) makes one"
        )


def _row(config: DictConfig) -> str:
    return config.hydra.runtime.choices.get("experiment") or "custom"


def _identity(config: DictConfig, plan: Plan) -> list[Any]:
    """Return what decides about the values of trials, beside the search itself."""
    plain = as_dict(OmegaConf.masked_copy(config, [str(k) for k in config if k != "hydra"]))
    instance = [plain["seed"], plain["dataset"].get("fold")]
    return [_row(config), hash_config(plain), instance, plan.repeats]


def _listed(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={text(value)}" for key, value in params.items())


def _say(line: str) -> None:
    print(line, flush=True)
