"""Editions of a table, whose rows shrink alike, and sweeps, which name rows by what they vary."""

import pytest
from experiments.rows import identity, resolved, rows_of

from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.runs.plan import tables

pytestmark = pytest.mark.usefixtures("workplace")
EDITIONS = [table for table in tables() if table.startswith("cpu/")]


@pytest.mark.parametrize("table", EDITIONS)
def test_rows_of_an_edition_differ_in_what_the_rows_differ(table):
    """Data and length are common; gradient, solvers and optimizer are the row's."""
    first, *_ = rows = rows_of(table)
    found, _ = identity(table, f"experiment={first}")
    assert found.row == f"cpu/{first}" or table == "cpu/figure3"
    assert (found.row.split("/")[0], found.changes) == ("cpu", ())
    common = set()
    for row in rows:
        config = resolved(f"cpu/{row}")
        assert config["label"]["reduced"]
        own = resolved(row)
        for part in ("gradient", "solver", "adjoint"):
            assert config[part] == own[part]
        assert config["optimizer"]["_target_"] == own["optimizer"]["_target_"]
        epochs, data = config["trainer"]["max_epochs"], {**config["dataset"], "augment": None}
        assert epochs < own["trainer"]["max_epochs"]
        common.add((epochs, str(data), config["trainer"]["devices"]))
    assert len(common) == 1


def test_sweep_names_its_rows_by_what_it_varies():
    """A combination is a row below the experiment's own, labelled as the paper does."""
    base = "table1/upg_k5_d0.5_no_dropout"
    varied = ("gradient=npg", "gradient.steps=9", "gradient.damping=1.0")
    found, config = identity("figure3", f"experiment={base}", *varied)
    assert found.row == f"figure3/{base}/npg_k9_d1.0"
    assert (found.instance, found.changes) == ("seed0", ())
    assert config["label"]["method"] == "NPG A(9, 1.0)"


def test_sweep_on_cox2_says_what_it_reduces():
    """It has three of the ten folds; otherwise a point that is a row of Table 4 equals that row."""
    varied = ("gradient=upg", "gradient.steps=5", "gradient.damping=0.5")
    found, config = identity("figure3_cox2", "experiment=table4/cox2_implicit", *varied)
    assert config["label"]["reduced"] == ["3 of 10 folds"]
    assert found.row == "figure3/table4/cox2_implicit/upg_k5_d0.5"
    assert found.instance == "seed42-fold0"
    assert found.config_hash == hash_config(resolved("table4/cox2_upg_k5_d0.5"))
