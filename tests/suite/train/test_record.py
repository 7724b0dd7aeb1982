"""A run and its record: full or reduced, published or not, and determined by the seed."""

import logging
import re
import shutil
from unittest.mock import Mock

import pytest
import torch
from interruptions import interrupted
from train.chains import CHAINS, EPOCHS, ROW, shorten

from phantomgrad_suite.evaluate import evaluate
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import MissingDataError, UserError
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
    assert set(record.seconds) >= {"total", "epoch", "step", "forward", "backward"}
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
    row = shorten(workplace, 40)
    full = row.with_name("implicit.yaml")  # the base of the row
    full.write_text(re.sub(r"label: \{reduced: .*\}", "", full.read_text()))
    folder = workplace.train(
        ROW, "seed=3", "runtime.callbacks.spectrum=null", "runtime.project=mine"
    )
    published = Archive(workplace.path / "runs/results/records")
    (record,) = published.of(Record, "chains/upg_k5_d0.5")
    assert record == read_record(folder / "record.json")
    assert (record.protocol, record.changes, record.instance) == ("full", [], "seed3")
    assert record.result.best > 0.95  # the embedded job is soon solved
    published.file(record.row).unlink()
    workplace.train(ROW, "seed=3", "runtime.callbacks.spectrum=null", "runtime.project=mine")
    assert published.holds(record)


def test_reduced_row_is_labelled(workplace):
    """The row's own file reduces the protocol: it is published, and labelled."""
    row = shorten(workplace, 2)
    row.write_text(f"{row.read_text()}label: {{reduced: [2 epochs of 300]}}\n")
    record = workplace.record(ROW)
    assert (record.protocol, record.changes) == ("reduced", ["2 epochs of 300"])
    assert Archive(workplace.path / "runs/results/records").holds(record)


@pytest.mark.parametrize("asked", ["auto", "cpu"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_reported(workplace, caplog, asked):
    workplace.train(
        "experiment=chains/implicit", "trainer.max_epochs=1", f"runtime.trainer.accelerator={asked}"
    )
    assert ("sees no GPU: training on the CPU" in caplog.text) == (asked == "auto")


COX2 = ("experiment=table4/cox2_implicit", "dataset.folds=3", "dataset.batch_size=8")


@pytest.fixture
def relabelled(small_tu, tmp_path):
    """Another root with the data set, of which two labels are flipped."""
    root = shutil.copytree(small_tu, tmp_path / "B")
    path = root / "COX2" / "raw" / "COX2_graph_labels.txt"
    labels = path.read_text().split()
    flipped = [str(-int(label)) for label in labels[:2]]
    path.write_text("".join(f"{label}\n" for label in (*flipped, *labels[2:])))
    return root


def test_a_run_is_not_resumed_on_other_data(workplace, small_tu, relabelled):
    here = (*COX2, "trainer.max_epochs=4", "runtime.checkpoint.every_n_epochs=1")
    folder = interrupted(workplace, 3, *here, f"runtime.dataset.root={small_tu}")
    before = (folder / "checkpoints" / "last.ckpt").read_bytes()
    other = f"runtime.dataset.root={relabelled}"
    with pytest.raises(UserError, match=r"last.ckpt is a checkpoint of a run on other data \(fin"):
        workplace.train(*here, other)
    assert (folder / "checkpoints" / "last.ckpt").read_bytes() == before
    workplace.train(*here, f"runtime.dataset.root={small_tu}")
    assert (folder / "record.json").exists()


def test_a_finished_run_is_not_skipped_on_other_data(
    workplace, small_tu, relabelled, monkeypatch, caplog, capsys
):
    caplog.set_level(logging.INFO)
    own, other = (f"runtime.dataset.root={root}" for root in (small_tu, relabelled))
    folder = workplace.train(*COX2, "trainer.max_epochs=1", own)
    with pytest.raises(UserError, match=r"holds a finished run on other data .*: restore those"):
        workplace.train(*COX2, "trainer.max_epochs=1", other)
    evaluate(folder, [other])
    assert capsys.readouterr().out.startswith("the data differ: the run has the fingerprint sha256")
    copy = shutil.copytree(small_tu, relabelled / "copy", copy_function=shutil.copyfile)
    workplace.train(*COX2, "trainer.max_epochs=1", f"runtime.dataset.root={copy}")
    assert "finished, skipped" in caplog.messages[-1]
    reads = Mock(side_effect=AssertionError)
    monkeypatch.setattr("phantomgrad_suite.jobs.build.build_data", reads)
    workplace.train(*COX2, "trainer.max_epochs=1", f"runtime.dataset.root={copy}")
    reads.assert_not_called()  # the files have the sizes and times that were noted
    reads.side_effect = MissingDataError("COX2 is not there")
    workplace.train(*COX2, "trainer.max_epochs=1", f"runtime.dataset.root={relabelled / 'none'}")
    assert caplog.messages[-2].endswith("cannot compare its data: COX2 is not there")
