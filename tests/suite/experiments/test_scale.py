"""The CPU edition: every row of a table shrinks alike, and keeps what it is about."""

import pytest
from experiments.rows import CONFIGS, identity, resolved, rows_of
from training import composed

from phantomgrad_suite.jobs.compose import identity_of
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.plan import tables

EDITIONS = [table for table in tables(CONFIGS) if table.startswith("cpu/")]


@pytest.mark.usefixtures("workplace")
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


@pytest.mark.usefixtures("workplace")
def test_override_of_an_edition_is_a_change():
    found = identity_of(
        composed(["experiment=table1/implicit", "scale=cpu", "trainer.max_epochs=2"])
    )
    assert (found.row, found.changes) == ("cpu/table1/implicit", ("trainer.max_epochs=2",))


@pytest.mark.usefixtures("workplace")
def test_what_has_no_edition_is_refused():
    message = r"no scale 'cpu' of ignn_nodes: no configs/scale/cpu/"
    with pytest.raises(UserError, match=message):
        identity_of(composed(["experiment=chains/implicit", "scale=cpu"]))
