"""The files of configs/tune: their commands, and the rows of their runs."""

from __future__ import annotations

import pytest
from graph_data import REPOSITORY
from training import composed

from phantomgrad_suite.jobs.compose import identity_of, names

ROW = "table4/honest/cox2_upg_k5_d0.5"


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
    config = composed(["tune=lambda_cox2", f"experiment={ROW}", "runtime.tune.trials=30", *own])
    found = identity_of(config)
    assert (found.row, found.instance) == (f"tune/{ROW}/upg_k5_d0.57", "seed42-fold2")
    assert found.changes == ()
    assert config.label.reduced == ["3 of 10 folds", "100 of 200 epochs"]
    assert (config.trainer.max_epochs, config.dataset.split) == (100, "stratified")
