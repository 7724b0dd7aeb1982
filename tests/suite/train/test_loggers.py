"""What loggers get: on wandb each run on its own, in a file the curves."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
from train.chains import CHAINS, EPOCHS
from training import Workplace

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record


def test_wandb_gets_each_run_on_its_own(workplace: Workplace, wandb: ModuleType) -> None:
    """Two runs of one table in one process: two runs on wandb, each with all that it is."""
    folders = [workplace.train(*CHAINS, "logger=wandb", f"seed={seed}") for seed in (0, 1)]
    wandb.finish()
    wandb.teardown()  # waits until all is written
    for folder in folders:
        (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
        content = path.read_bytes()
        config = read_record(folder / "record.json").config
        for said in (
            "chains/upg_k5_d0.5",  # group
            "upg",  # job type
            folder.name,
            "phantomgrad",  # project
            "test/accuracy",
            json.dumps(config["label"]["method"]),
            config["optimizer"]["_target_"],
        ):
            assert said.encode() in content, said


def test_wandb_is_asked_for_only_where_it_is_chosen(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    workplace.train(*CHAINS)
    with pytest.raises(UserError, match=r"needs the package wandb: install it"):
        workplace.train(*CHAINS, "logger=wandb", "seed=1")


def test_csv_logger_keeps_the_curves(workplace: Workplace) -> None:
    folder = workplace.train(*CHAINS)
    (metrics,) = folder.glob("csv/version_0/metrics.csv")
    header, *rows = metrics.read_text().splitlines()
    assert {"train/loss", "test/accuracy", "spectral_radius"} <= set(header.split(","))
    assert len(rows) >= EPOCHS
