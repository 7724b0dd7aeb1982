"""Tables that vary the settings of one experiment, and name their rows by them."""

from itertools import product

import pytest
from experiments.rows import identity, resolved
from training import composed

from phantomgrad_suite.runs.identity import hash_config


def combinations(table: str) -> list[list[str]]:
    """The overrides of every run that a sweep launches, but for seeds and folds."""
    from hydra.core.hydra_config import HydraConfig

    composed([f"table={table}"])
    params = dict(HydraConfig.get().sweeper.params)
    varied = {k: str(v).split(",") for k, v in params.items() if k not in ("seed", "dataset.fold")}
    varied["experiment"] = [params["experiment"]]
    return [
        [f"{key}={value}" for key, value in zip(varied, values, strict=True)]
        for values in product(*varied.values())
    ]


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("table", "base", "instance"),
    [
        ("figure3", "table1/upg_k5_d0.5_no_dropout", "seed0"),
        ("figure3_digits", "digits/implicit", "seed0"),
        ("figure3_cox2", "table4/cox2_implicit", "seed42-fold0"),
    ],
)
def test_sweep_names_its_rows_by_what_it_varies(table: str, base: str, instance: str) -> None:
    """Each combination is a row below the experiment's own, labelled as the paper does."""
    every = combinations(table)
    assert len({tuple(overrides) for overrides in every}) == len(every) == 2 * 4 * 3
    expected = {0: ("upg", 1, 0.25), 7: ("upg", 5, 0.5), 23: ("npg", 9, 1.0)}
    hashes = set()
    for number, (form, k, damping) in expected.items():
        found, config = identity(table, *every[number])
        assert found.row == f"figure3/{base}/{form}_k{k}_d{damping}"
        assert (found.instance, found.changes) == (instance, ())
        assert config["label"]["method"] == f"{form.upper()} A({k}, {damping})"
        hashes.add(found.config_hash)
    assert len(hashes) == 3


@pytest.mark.usefixtures("workplace")
def test_sweep_on_cox2_says_what_it_reduces() -> None:
    """It has three of the ten folds; otherwise a point that is a row of Table 4 equals that row."""
    from hydra.core.hydra_config import HydraConfig

    overrides = combinations("figure3_cox2")[7]
    assert HydraConfig.get().sweeper.params["dataset.fold"] == "range(3)"
    found, config = identity("figure3_cox2", *overrides)
    assert config["label"]["reduced"] == ["3 of 10 folds"]
    assert found.row == "figure3/table4/cox2_implicit/upg_k5_d0.5"
    assert found.config_hash == hash_config(resolved("table4/cox2_upg_k5_d0.5"))
