"""What a run tells wandb while it goes on: where it belongs, and how its curves are to be read."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from training import Workplace
from wandb_files import Offline, read_offline

from phantomgrad_suite.callbacks.wandb_naming import run_id
from phantomgrad_suite.runs.records import read_record

SHORT = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=2", "logger=wandb")


def written(folder: Path, wandb: ModuleType) -> Offline:
    wandb.finish()
    wandb.teardown()  # waits until all is written
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    return read_offline(path)


def test_run_is_grouped_and_tagged(workplace: Workplace, wandb: ModuleType) -> None:
    folder = workplace.train(*SHORT)
    found = written(folder, wandb)
    row, instance = "chains/upg_k5_d0.5", folder.name
    assert found.run.run_id == run_id(row, instance)
    assert (found.run.run_group, found.run.job_type) == (row, "upg")
    assert list(found.run.tags) == ["chains", row]
    own = {"table": "chains", "row": row, "instance": instance, "protocol": "reduced"}
    assert own.items() <= found.config.items()
    assert found.config["label"]["method"] == "UPG A(5, 0.5)"


def test_curves_are_by_epoch_and_the_best_value_counts(
    workplace: Workplace, wandb: ModuleType
) -> None:
    folder = workplace.train(*SHORT)
    found, result = written(folder, wandb), read_record(folder / "record.json").result
    for name in ("test/accuracy", "train/*", "solver/*", "seconds/*", "spectral_radius"):
        assert found.metrics[name].step_metric == "epoch", name
    tested = [line for line in found.history if "test/accuracy" in line]
    assert [line["epoch"] for line in tested] == [0, 1]
    best = found.summary["test/accuracy"]
    assert (best["max"], best["last"]) == pytest.approx((result.best, result.last))


def test_words_of_the_command_line_come_first(workplace: Workplace, wandb: ModuleType) -> None:
    folder = workplace.train(*SHORT, "+logger.tags=[mine]", "+logger.notes=a trial")
    found = written(folder, wandb)
    assert (list(found.run.tags), found.run.notes) == (["mine"], "a trial")
