"""Commands to be launched, and the settings of a cluster's own file."""

from pathlib import Path
from typing import Any

from graph_data import REPOSITORY
from omegaconf import DictConfig, OmegaConf

from phantomgrad_suite.cluster.command import Command

SHORT = ("trainer.max_epochs=2", "table=chains", "seed=0")
# One row that trains, and one whose data are not there.
ROWS = "experiment=chains/upg_k5_d0.5,table4/ppi_implicit"


def settings(name: str, **changes: Any) -> DictConfig:
    content = OmegaConf.load(REPOSITORY / "configs" / "cluster" / f"{name}.yaml")
    return OmegaConf.merge(content.runtime.cluster, changes)


def commands(*codes: int, **needs: Any) -> list[Command]:
    return [
        Command(f"row seed{i}", (f"run{i}", str(code)), Path(f"runs/row/seed{i}"), **needs)
        for i, code in enumerate(codes)
    ]
