"""What loggers receive: on wandb a run for each run, grouped and tagged; in a file the curves."""

import pytest
from interruptions import interrupted
from train.chains import CHAINS
from train.wandb_files import read_offline

from phantomgrad_suite.runs.records import read_record
from phantomgrad_suite.runs.wandb_naming import names

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
