"""What loggers receive: on wandb a run for each run, grouped and tagged; in a file the curves."""

from unittest.mock import Mock

import pytest
from interruptions import interrupted
from train.chains import CHAINS

from phantomgrad_suite.runs.records import read_record
from phantomgrad_suite.runs.wandb_naming import names

ROW = "chains/upg_k5_d0.5"
SHORT = (f"experiment={ROW}", "trainer.max_epochs=2")


def test_wandb_has_a_run_for_each_run(workplace, monkeypatch):
    """Curves are by epoch, the best test value is the summary; own options take precedence."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setattr(wandb, "init", init := Mock())
    folder = workplace.train(*SHORT, "logger=wandb", "+runtime.logger.tags=[mine]")
    given, run = init.call_args.kwargs, init.return_value
    name = f"upg_k5_d0.5 {folder.name} on Chains: trainer.max_epochs=2"
    assert (given["id"], given["name"]) == (names(ROW, folder.name, "Chains")["id"], name)
    assert (given["project"], given["group"], given["job_type"]) == ("phantomgrad", ROW, "upg")
    assert given["tags"] == ["mine"]
    assert given["config"] == {"table": "chains", "row": ROW, "instance": folder.name}
    axes = {call.args[0]: call.kwargs for call in run.define_metric.call_args_list}
    assert {axes[name]["step_metric"] for name in ("train/*", "spectral_radius")} == {"epoch"}
    assert axes["test/accuracy"]["summary"] == "max,last"
    lines = [call.args[0] for call in run.log.call_args_list]
    curve = [(line["epoch"], line["test/accuracy"]) for line in lines if "test/accuracy" in line]
    recorded = read_record(folder / "record.json").curves["test/accuracy"]
    assert curve == [(epoch, pytest.approx(value)) for epoch, value in enumerate(recorded)]


def test_resumed_run_continues_its_curves_in_tensorboard(workplace):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = interrupted(workplace, 4, *CHAINS)
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
