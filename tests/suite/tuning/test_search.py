"""Plans and proposals of searches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from optuna.trial import FrozenTrial
from report.conftest import record

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tuning.plan import SearchPlan, format_value
from phantomgrad_suite.tuning.search import Search

SEARCH = Search(
    objective="validation/loss",
    direction="minimize",
    trials=9,
    startup=2,
    step=0.01,
    first=[{"gradient.damping": 0.5}],
    seed=0,
)


def plan(*overrides: str) -> SearchPlan:
    return SearchPlan.of(OverridesParser.create().parse_overrides(list(overrides)))


SPACE = plan("gradient.damping=interval(0.1,1.0)", "gradient.steps=1,3,5").space(0.01)


def finished(params: dict[str, Any], value: float, space: Any = SPACE) -> FrozenTrial:
    return optuna.create_trial(params=params, distributions=space, value=value)


def search_for(search: Search, trials: int, optimum: float = 0.3) -> list[FrozenTrial]:
    """Answer proposals by the distance of λ to ``optimum``."""
    found: list[FrozenTrial] = []
    for position in range(trials):
        params = search.propose(position, SPACE, found)
        found.append(finished(params, abs(params["gradient.damping"] - optimum)))
    return found


def test_overrides_are_sorted_by_their_role() -> None:
    """The last one for a setting counts; seeds and folds repeat a trial."""
    found = plan(
        *("gradient.damping=0.5", "tune=lambda", "seed=range(2)", "+a.b=[1,2]"),
        *("gradient.damping=interval(0.1,0.6)", "dataset.fold=3,4", "seed=7,8"),
    )
    assert found.fixed == ("tune=lambda", "+a.b=[1,2]")
    assert [o.get_key_element() for o in found.searched] == ["gradient.damping"]
    assert found.runs({"gradient.damping": 0.1 + 0.2}) == [
        [*found.fixed, "gradient.damping=0.3", f"seed={seed}", f"dataset.fold={fold}"]
        for seed in (7, 8)
        for fold in (3, 4)
    ]
    assert plan("x=1,2").runs({"x": "1"}) == [["x=1"]]


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.0"), (0.1 + 0.2, "0.3"), ("a", "a"), (3, "3")]
)
def test_values_are_printed_without_rounding_errors(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_proposals_lie_in_the_space_and_approach_the_optimum() -> None:
    """At random the median distance would be 0.25."""
    found = search_for(SEARCH, 40)
    for trial in found:
        hundredths = trial.params["gradient.damping"] * 100
        assert 10 <= round(hundredths) <= 100
        assert hundredths == pytest.approx(round(hundredths))
        assert trial.params["gradient.steps"] in ("1", "3", "5")
    late = sorted(trial.values[0] for trial in found[25:])
    assert late[len(late) // 2] < 0.15


def test_nothing_is_proposed_twice_while_something_is_left() -> None:
    search, space = replace(SEARCH, first=None), plan("gradient.steps=1,3,5,9").space(0.01)
    trials: list[FrozenTrial] = []
    for position in range(5):
        params = search.propose(position, space, trials)
        trials.append(finished(params, float(params["gradient.steps"]), space))
    tried = [trial.params["gradient.steps"] for trial in trials]
    assert sorted(tried[:4]) == ["1", "3", "5", "9"]
    assert tried[4] in tried[:4]


def test_first_trials_come_first_if_they_lie_in_the_space() -> None:
    first = [{"gradient.damping": 2.0}, {"other": 1}, {"gradient.damping": 0.8}]
    assert replace(SEARCH, first=first).propose(0, SPACE, [])["gradient.damping"] == 0.8


def test_proposals_depend_on_seed_position_and_earlier_trials_only() -> None:
    params = [trial.params for trial in search_for(SEARCH, 6)]
    assert [trial.params for trial in search_for(SEARCH, 6)] == params
    assert [trial.params for trial in search_for(replace(SEARCH, seed=1), 6)] != params


@pytest.mark.parametrize(("direction", "best"), [("minimize", 1), ("maximize", 0)])
def test_best_of_equal_trials_is_the_first(direction: Any, best: int) -> None:
    params = SEARCH.propose(0, SPACE, [])
    trials = [finished(params, value) for value in (3.0, 1.0, 1.0, 3.0)]
    assert replace(SEARCH, direction=direction).best(trials) is trials[best]


def test_objective_of_a_run_is_that_of_its_best_epoch() -> None:
    def run(**curves: list[float | None]) -> Any:
        named = {f"validation/{name}": curve for name, curve in curves.items()}
        return replace(record("toy", "seed0", [0.5]), curves=cast("Any", named))

    assert SEARCH.value(run(loss=[3.0, None, 1.0, 2.0])) == 1.0
    assert replace(SEARCH, direction="maximize").value(run(loss=[3.0, None, 1.0])) == 3.0
    assert SEARCH.value(run(loss=[None, None])) is None
    with pytest.raises(UserError, match="must be one of validation/f1, got 'validation/loss'"):
        SEARCH.value(run(f1=[0.1]))
