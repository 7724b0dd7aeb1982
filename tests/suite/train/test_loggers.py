"""What loggers receive: on wandb a run for each run, grouped and tagged; in a file the curves."""

import errno
import os
import shutil
import sys
from unittest.mock import Mock

import pytest
from interruptions import interrupted
from train.chains import CHAINS
from train.wandb_files import read_offline

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record
from phantomgrad_suite.runs.wandb_naming import names, wandb_logger

ROW = "chains/upg_k5_d0.5"
SHORT = (f"experiment={ROW}", "trainer.max_epochs=2")


@pytest.fixture
def wandb(monkeypatch):
    """wandb without network."""
    module = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield module
    module.finish()
    module.teardown()


def test_wandb_has_a_run_for_each_run(workplace, wandb):
    """Two runs in one process; curves are by epoch, the best test value is the summary."""
    own = ("+runtime.logger.tags=[mine]", "+runtime.logger.notes=a trial")
    options = {0: (), 1: own}
    folders = [
        workplace.train(*SHORT, "logger=wandb", f"seed={seed}", *options[seed]) for seed in options
    ]
    wandb.finish()
    wandb.teardown()  # waits until everything is written
    runs = []
    for folder in folders:
        (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
        found, record = read_offline(path), read_record(folder / "record.json")
        runs.append(found.run)
        assert (found.run.run_id, found.run.display_name) == (
            names(ROW, folder.name, "Chains")["id"],
            f"upg_k5_d0.5 {folder.name} on Chains: trainer.max_epochs=2",
        )
        assert (found.run.project, found.run.run_group) == ("phantomgrad", ROW)
        assert found.run.job_type == "upg"
        place = {"table": "chains", "row": ROW, "instance": folder.name}
        assert place.items() <= found.config.items()
        assert found.config["label"]["method"] == "UPG A(5, 0.5)"
        assert found.config["optimizer"]["_target_"] == record.config["optimizer"]["_target_"]
        for metric in ("test/accuracy", "train/*", "spectral_radius"):
            assert found.metrics[metric].step_metric == "epoch"
        assert [line["epoch"] for line in found.history if "test/accuracy" in line] == [0, 1]
        best, result = found.summary["test/accuracy"], record.result
        assert (best["max"], best["last"]) == pytest.approx((result.best, result.last))
    assert list(runs[0].tags) == ["chains", ROW]
    assert (list(runs[1].tags), runs[1].notes) == (["mine"], "a trial")


def test_wandb_is_needed_only_where_it_is_chosen(workplace, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"needs the package wandb: install it"):
        workplace.train(*SHORT, "logger=wandb")


def test_wandb_without_a_key_names_what_needs_none(workplace, wandb, monkeypatch):
    error = wandb.errors.UsageError("No API key configured.\nLog in.")
    monkeypatch.setattr(wandb, "init", Mock(side_effect=error))
    with pytest.raises(
        UserError, match=r"No API key .* \(runtime.logger.offline=true needs neither"
    ):
        workplace.train(*SHORT, "logger=wandb")
    with pytest.raises(UserError, match=r"runtime.logger.offline must be bool, got 'maybe'"):
        workplace.train(*SHORT, "logger=wandb", "runtime.logger.offline=maybe")


def test_wandb_id_is_of_the_machine_that_began_the_run(workplace, wandb, monkeypatch):
    here = {"group": "a", "name": "b", "changes": [], "dataset": "c", "metric": "accuracy"}
    found = []
    for folder, machine in (("x", "first"), ("y", "second"), ("x", "third")):
        monkeypatch.setattr("platform.node", lambda machine=machine: machine)
        logger = wandb_logger(**here, save_dir=folder, offline=True)
        found.append(logger.version)
    first, second, resumed = found
    assert first == resumed != second


def test_file_in_place_of_the_curves_is_named(workplace):
    folder = workplace.train(*CHAINS)
    (folder / "record.json").unlink()
    shutil.rmtree(folder / "tensorboard")
    (folder / "tensorboard").touch()
    with pytest.raises(UserError, match=r"/tensorboard: .*: it must be a folder: move it away"):
        workplace.train(*CHAINS)


def test_curves_that_cannot_be_written_end_the_run_in_a_line(workplace, monkeypatch):
    """Nor does the thread that writes them print its traceback, which pytest would report."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    error = OSError(errno.EROFS, os.strerror(errno.EROFS), b"runs/events")
    monkeypatch.setattr(RecordWriter, "write", Mock(side_effect=error))
    with pytest.raises(UserError, match=r"^runs/events: Read-only file system: make it writable"):
        workplace.train(*CHAINS)


def test_resumed_run_continues_its_curves_in_tensorboard(workplace):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = interrupted(workplace, 8, *CHAINS)
    workplace.train(*CHAINS)
    curves = EventAccumulator(str(folder / "tensorboard")).Reload()
    record = read_record(folder / "record.json")
    for name in ("train/loss", "test/accuracy"):
        values = {event.step: event.value for event in curves.Scalars(name)}
        assert list(values.values()) == pytest.approx(record.curves[name], rel=1e-5)
    (best,) = curves.Scalars(f"best/{record.result.metric}")
    assert best.value == pytest.approx(record.result.best)
    started = curves.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert all(name.encode() in started for name in ("method", "forward solver", "lambda", "k"))
