"""Proposals: what they follow from, and that they stay in the space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, Result
from phantomgrad_suite.tuning.search import Search, Study
from phantomgrad_suite.tuning.space import Plan, text

SEARCH = Search(
    objective="validation/loss",
    direction="minimize",
    trials=9,
    startup=2,
    step=0.01,
    first=({"gradient.damping": 0.5},),
    seed=0,
)


def plan(*overrides: str) -> Plan:
    return Plan.of(OverridesParser.create().parse_overrides(list(overrides)))


PLAN = plan("gradient.damping=interval(0.1,1.0)", "gradient.steps=1,3,5")


def study(path: Path, search: Search = SEARCH, identity: Any = "x") -> Study:
    return Study(path / "journal", search, PLAN.space(search.step), identity)


def search_for(study: Study, positions: range, optimum: float = 0.3) -> list[dict[str, Any]]:
    """Answer proposals by the distance of λ to ``optimum``."""
    found = []
    for position in positions:
        found.append(study.propose(position))
        study.add(position, found[-1], abs(found[-1]["gradient.damping"] - optimum))
    return found


def test_overrides_are_sorted_by_what_they_are_for() -> None:
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
    ("value", "said"), [(1.0, "1.0"), (0.1 + 0.2, "0.3"), ("a", "a"), (3, "3")]
)
def test_values_are_said_without_rounding_errors(value: Any, said: str) -> None:
    assert text(value) == said


def test_proposals_lie_in_the_space(tmp_path: Path) -> None:
    for params in search_for(study(tmp_path), range(30)):
        assert set(params) == {"gradient.damping", "gradient.steps"}
        hundredths = params["gradient.damping"] * 100
        assert 10 <= round(hundredths) <= 100
        assert hundredths == pytest.approx(round(hundredths))
        assert params["gradient.steps"] in ("1", "3", "5")


def test_search_closes_in_on_the_optimum(tmp_path: Path) -> None:
    """By chance the median distance would be 0.25."""
    found = search_for(study(tmp_path), range(40))
    late = sorted(abs(params["gradient.damping"] - 0.3) for params in found[25:])
    assert late[len(late) // 2] < 0.15


def test_nothing_is_proposed_twice_while_something_is_left(tmp_path: Path) -> None:
    """What was run already would tell nothing; when all is tried, there is no other way."""
    search = Search(**{**vars(SEARCH), "first": ()})
    found = Study(tmp_path / "journal", search, plan("gradient.steps=1,3,5,9").space(0.01), "x")
    tried = []
    for position in range(5):
        tried.append(found.propose(position)["gradient.steps"])
        found.add(position, {"gradient.steps": tried[-1]}, float(tried[-1]))
    assert sorted(tried[:4]) == ["1", "3", "5", "9"]
    assert tried[4] in tried[:4]


def test_first_trials_come_first_if_they_lie_in_the_space(tmp_path: Path) -> None:
    first = ({"gradient.damping": 2.0}, {"other": 1}, {"gradient.damping": 0.8})
    search = Search(**{**vars(SEARCH), "first": first})
    assert study(tmp_path, search).propose(0)["gradient.damping"] == 0.8


def test_proposal_follows_from_seed_place_and_trials_before_it(tmp_path: Path) -> None:
    one = study(tmp_path)
    expected = search_for(one, range(6))
    assert [one.propose(position) for position in range(6)] == expected
    again = study(tmp_path)
    assert [again.propose(position) for position in range(6)] == expected
    assert again.trials == one.trials
    (tmp_path / "other").mkdir()
    other = Search(**{**vars(SEARCH), "seed": 1})
    assert search_for(study(tmp_path / "other", other), range(6)) != expected


def test_best_is_by_the_direction_and_of_equals_the_first(tmp_path: Path) -> None:
    for direction, best in (("minimize", 1), ("maximize", 0)):
        search = Search(**{**vars(SEARCH), "direction": direction})
        found = study(tmp_path, search)
        assert found.best is None
        for position, value in enumerate((3.0, 1.0, 1.0, 3.0)):
            found.add(position, found.propose(position), value)
        assert found.best is not None
        assert found.best.position == best


def test_studies_of_other_settings_share_the_file_and_nothing_else(tmp_path: Path) -> None:
    search_for(study(tmp_path), range(2))
    assert study(tmp_path, identity="y").trials == []
    assert study(tmp_path, Search(**{**vars(SEARCH), "step": 0.1})).trials == []
    assert len(study(tmp_path, Search(**{**vars(SEARCH), "trials": 99})).trials) == 2


def test_value_of_a_run_is_that_of_its_best_epoch(make: Callable[..., Record]) -> None:
    record = make({"validation/loss": [3.0, None, 1.0, 2.0], "test/loss": [0.0] * 4})
    assert SEARCH.value(record) == 1.0
    assert Search(**{**vars(SEARCH), "direction": "maximize"}).value(record) == 3.0
    assert SEARCH.value(make({"validation/loss": [None, None]})) is None
    with pytest.raises(UserError, match="must be one of validation/f1, got 'validation/loss'"):
        SEARCH.value(make({"validation/f1": [0.1]}))


@pytest.fixture
def make() -> Callable[..., Record]:
    def record(curves: dict[str, Any]) -> Record:
        return Record(
            **dict.fromkeys(("row", "instance", "protocol", "config_hash"), "a"),
            **dict.fromkeys(("started", "finished"), "now"),
            **{
                name: {}
                for name in (
                    *("label", "parameters", "data", "solver", "seconds"),
                    *("memory", "environment", "config"),
                )
            },
            changes=[],
            result=Result("f1", 1.0, 1, 1.0),
            curves=curves,
        )

    return record
