"""The files of configs/tune, and plans and proposals of searches."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from graph_data import REPOSITORY
from hydra.core.override_parser.overrides_parser import OverridesParser
from report.conftest import record
from training import composed

from phantomgrad_suite.jobs.compose import identity_of, names
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tuning import Search, SearchPlan

HONEST = "table4/honest/cox2_upg_k5_d0.5"
SETTINGS = {
    "objective": "validation/loss",
    "direction": "minimize",
    "trials": 9,
    "startup": 2,
    "first": [{"gradient.damping": 0.5}],
    "seed": 0,
}


def plan(*overrides: str) -> SearchPlan:
    return SearchPlan.of(OverridesParser.create().parse_overrides(list(overrides)))


SPACE = plan("gradient.damping=interval(0.1,1.0)", "gradient.steps=1,3,5").space(0.01)


def search(space: Any = SPACE, **changes: Any) -> Search:
    return Search(SimpleNamespace(**{**SETTINGS, **changes}), space)


def proposals(trials: int, space: Any = SPACE, **changes: Any) -> list[dict[str, Any]]:
    """Answer proposals by the distance of λ to 0.3."""
    made = search(space, **changes)
    for position in range(trials):
        trial = made.propose(position)
        made.study.tell(trial, abs(trial.params.get("gradient.damping", 1.0) - 0.3))
    return [trial.params for trial in made.finished()]


def test_overrides_are_sorted_by_their_role() -> None:
    """The last override of a setting counts; seeds and folds repeat a trial."""
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


def test_proposals_lie_in_the_space_and_approach_the_optimum() -> None:
    """Random proposals would have a median distance of 0.25."""
    found = proposals(40)
    for params in found:
        hundredths = params["gradient.damping"] * 100
        assert 10 <= round(hundredths) <= 100
        assert hundredths == pytest.approx(round(hundredths))
        assert params["gradient.steps"] in ("1", "3", "5")
    late = sorted(abs(params["gradient.damping"] - 0.3) for params in found[25:])
    assert late[len(late) // 2] < 0.15


def test_nothing_is_proposed_twice_while_something_is_left() -> None:
    found = proposals(5, plan("gradient.steps=1,3,5,9").space(0.01), first=None)
    tried = [params["gradient.steps"] for params in found]
    assert sorted(tried[:4]) == ["1", "3", "5", "9"]
    assert tried[4] in tried[:4]


def test_first_trials_come_first_if_they_lie_in_the_space() -> None:
    first = [{"gradient.damping": 2.0}, {"other": 1}, {"gradient.damping": 0.8}]
    (params,) = proposals(1, first=first)
    assert params["gradient.damping"] == 0.8


def test_proposals_depend_on_seed_position_and_earlier_trials_only() -> None:
    found = proposals(6)
    assert proposals(6) == found
    assert proposals(6, seed=1) != found


def test_objective_of_a_run_is_that_of_its_best_epoch() -> None:
    def run(**curves: list[float | None]) -> Any:
        named = {f"validation/{name}": curve for name, curve in curves.items()}
        return replace(record("toy", "seed0", [0.5]), curves=cast("Any", named))

    assert search().value(run(loss=[3.0, None, 1.0, 2.0])) == 1.0
    assert search(direction="maximize").value(run(loss=[3.0, None, 1.0])) == 3.0
    assert search().value(run(loss=[None, None])) is None
    with pytest.raises(UserError, match="must be one of validation/f1, got 'validation/loss'"):
        search().value(run(f1=[0.1]))


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", names("tune"))
def test_file_names_its_own_command_and_a_row(name: str) -> None:
    from hydra.core.hydra_config import HydraConfig

    text = (REPOSITORY / "configs" / "tune" / f"{name}.yaml").read_text()
    assert f"#   python scripts/train.py tune={name}" in text
    composed([f"tune={name}"])
    chosen = HydraConfig.get()
    assert chosen.mode.name == "MULTIRUN"
    assert chosen.sweeper.params["experiment"] in names("experiment")


@pytest.mark.usefixtures("workplace")
def test_runs_are_rows_of_their_own() -> None:
    """Named by λ, reduced as the file lists, and without changes by overrides."""
    own = ("seed=42", "dataset.fold=2", "gradient.damping=0.57")
    config = composed(["tune=lambda_cox2", f"experiment={HONEST}", "runtime.tune.trials=30", *own])
    found = identity_of(config)
    assert (found.row, found.instance) == (f"tune/{HONEST}/upg_k5_d0.57", "seed42-fold2")
    assert found.changes == ()
    assert config.label.reduced == ["3 of 10 folds", "100 of 200 epochs"]
    assert (config.trainer.max_epochs, config.dataset.split) == (100, "stratified")
