"""A run and its record: full or reduced, published or not, and determined by the seed."""

import re

import pytest
import torch
from train.chains import CHAINS, EPOCHS, ROW, shorten

from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.runs.records import Record, read_record


def test_run_writes_its_record(workplace):
    folder = workplace.train(*CHAINS)
    record = read_record(folder / "record.json")
    assert record.row == "chains/upg_k5_d0.5"
    assert folder == workplace.path / "runs" / record.row / record.instance
    assert record.label == {"dataset": "Chains", "model": "IGNN", "method": "UPG A(5, 0.5)"}
    assert record.parameters == {"total": 3504, "trainable": 1888}
    assert (record.data["train"], record.data["test"]) == (20, 200)
    curves = record.curves
    assert {len(curve) for curve in curves.values()} == {EPOCHS}
    assert record.result.best == pytest.approx(max(curves["test/accuracy"]))
    assert record.result.last == pytest.approx(curves["test/accuracy"][-1])
    assert curves["train/loss"][-1] < curves["train/loss"][0]
    assert set(record.seconds) >= {"total", "epoch", "epoch_cpu", "step_cpu"}
    assert record.solver["evaluations"] > 1
    assert record.solver["converged"] == 1
    assert record.memory["peak_bytes"] > 1e6
    assert record.config_hash == hash_config(record.config)
    assert record.config["runtime"]["run"]["instance"] == record.instance
    assert torch.__version__.startswith(record.environment["versions"]["torch"])
    assert record.environment["processes"] == 1
    load = record.environment["load"]
    assert set(load) == {"start", "end", "cpu_over_wall"}
    shares = record.seconds["epoch_cpu"] / record.seconds["epoch"]
    assert load["cpu_over_wall"] == pytest.approx(shares)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_record_names_the_gpu(workplace):
    """When the record is written, Lightning has moved the model back to the CPU."""
    record = workplace.record(*CHAINS, "runtime.trainer.accelerator=gpu")
    assert record.environment["accelerator"] == torch.cuda.get_device_name()
    assert record.memory["kind"] == "cuda"
    on_cpu = workplace.record(*CHAINS, "runtime.paths.runs=other")
    assert on_cpu.environment["accelerator"] is None


def test_unchanged_row_is_published(workplace):
    """Only `runtime` settings are overridden: the record is written to the results."""
    row = shorten(workplace, 3)
    full = row.with_name("implicit.yaml")  # the base of the row
    full.write_text(re.sub(r"label: \{reduced: .*\}", "", full.read_text()))
    here = (ROW, "seed=3", "runtime.callbacks.spectrum=null", "runtime.project=mine")
    folder = workplace.train(*here)
    published = Archive(workplace.path / "runs/results/records")
    (record,) = published.of(Record, "chains/upg_k5_d0.5")
    assert record == read_record(folder / "record.json")
    assert (record.protocol, record.changes, record.instance) == ("full", [], "seed3")
    (folder / "record.json").unlink()
    (folder / "checkpoints").rename(folder / "old")
    workplace.train(*here)
    (again,) = Archive(workplace.path / "runs/results/records").of(Record, "chains/upg_k5_d0.5")
    assert again.started > record.started  # trained again
    published.file(record.row).unlink()
    workplace.train(*here)
    assert published.holds(record)
