"""Every row trains: a step and an evaluation through the real entry, on small data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiments.rows import ROWS, resolved
from training import Workplace

from phantomgrad_suite.runs.records import read_record

ON_GRAPHS = ("table4/", "figure2/cox2")
ON_IMAGES = ("table1/", "table3/cifar10", "table3/imagenet", "cifar10-jpeg/")
# MDEQ on images of 32 x 32 and more would take a minute: its own tests know the sizes.
NARROW = (
    *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
    *("solver.max_evaluations=3", "adjoint.max_evaluations=3", "dataset.batch_size=4"),
)


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith(ON_IMAGES)])
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_row_on_images_trains(
    workplace: Workplace, cifar_root: Path, jpeg_root: Path, folder_root: Path, row: str
) -> None:
    """Likewise, with a narrow model; one process takes the place of several GPUs."""
    on_imagenet, on_jpeg = "imagenet" in row, row.startswith("cifar10-jpeg/")
    root = folder_root if on_imagenet else jpeg_root if on_jpeg else cifar_root
    short = ["trainer.max_epochs=1", "+trainer.limit_train_batches=1", *NARROW]
    if on_imagenet:
        short += ["trainer.strategy=auto", "trainer.devices=1", "runtime.dataset.workers=0"]
    record = read_record(
        workplace.train(f"experiment={row}", f"runtime.dataset.root={root}", *short) / "record.json"
    )
    assert (record.row, record.protocol) == (row, "reduced")
    assert 0 <= record.result.best <= 1
    gradient = record.config["gradient"]
    if "steps" in gradient and record.config["runtime"]["run"]["gradient"] != "one_step":
        assert f"A({gradient['steps']}, {gradient['damping']})" in record.label["method"]


ON_TEXT = ("table3/wikitext103", "lm/", "wikitext/")
# The 98M parameters of the paper have their own test.
TINY = (
    *("model.width=8", "model.heads=2", "model.inner=16", "model.cutoffs=[20,60]"),
    *("++model.shrinkage=2", "solver.max_evaluations=4", "adjoint.max_evaluations=4"),
    *("dataset.batch_size=2", "dataset.segment_length=9", "trainer.max_epochs=1"),
    *("++trainer.strategy=auto", "trainer.devices=1", "+trainer.limit_train_batches=1"),
)


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith(ON_TEXT)])
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_row_on_texts_trains(workplace: Workplace, text_root: Path, row: str) -> None:
    """Likewise, with a narrow model, at an equilibrium and with the penalty where there is one."""
    small = [*TINY, "task.pretraining_steps=0", "+trainer.limit_val_batches=2"]
    if row.startswith("table3/"):
        small.append("task.other_memories=[3]")
    if "_jr_" in row:
        small.append("task.jacobian.frequency=1")
    if not row.startswith("lm/"):
        small.append(f"runtime.dataset.root={text_root}")
    record = read_record(workplace.train(f"experiment={row}", *small) / "record.json")
    assert (record.row, record.protocol) == (row, "reduced")
    assert set(record.label) == {"dataset", "model", "method"}
    assert (record.result.metric, record.result.mode) == ("perplexity", "min")
    assert 10 < record.result.best < 1e4
    assert ("train/jacobian" in record.curves) is ("_jr_" in row)
    assert ("test/perplexity_at_3" in record.curves) is row.startswith("table3/")
    config = record.config
    form = method(config)
    assert record.label["method"] == ("JR + " if "_jr_" in row else "") + form
    assert (
        record.label["model"] == f"DEQ ({'PreLN' if config['model'].get('pre_norm') else 'PostLN'})"
    )


ON_PPI = ("table4/ppi", "ppi/")


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith(ON_PPI)])
def test_row_on_ppi_trains(workplace: Workplace, row: str) -> None:
    """Likewise, with a narrow model on small random graphs, which are never called PPI."""
    full = row.startswith("table4/")
    assert resolved(row)["label"]["dataset"] == ("PPI" if full else "ppi-synthetic")
    small = ["model.channels=[8,4]", "dataset.scale=0.005", "trainer.max_epochs=1"]
    if full:
        small.append("dataset=ppi_synthetic")
    record = read_record(
        workplace.train(f"experiment={row}", *small, "+trainer.limit_train_batches=1")
        / "record.json"
    )
    assert (record.row, record.protocol) == (row, "reduced")
    assert record.label["dataset"] == record.data["name"] == "ppi-synthetic"
    assert (record.result.metric, record.result.mode) == ("micro_f1", "max")
    assert 0 <= record.result.best <= 1
    assert record.result.selected == record.result.best
    assert record.curves["collapse/loss"] == [0]
    config = record.config
    assert record.label["method"] == method(config)


ELSEWHERE = (*ON_IMAGES, *ON_TEXT, *ON_PPI)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith(ELSEWHERE)])
def test_row_trains(workplace: Workplace, small_tu: Path, row: str) -> None:
    """One step and one evaluation through the real entry, on small data, with a record."""
    small = [f"runtime.dataset.root={small_tu}"] if row.startswith(ON_GRAPHS) else []
    folder = workplace.train(
        f"experiment={row}", "trainer.max_epochs=1", "+trainer.limit_train_batches=1", *small
    )
    record = read_record(folder / "record.json")
    assert (record.row, record.protocol) == (row, "reduced")
    assert set(record.label) == {"dataset", "model", "method"}
    assert 0 <= record.result.best <= 1
    assert record.solver["converged"] == 1
    config = record.config
    assert record.label["method"] == method(config)
    if "name" in config["dataset"]:
        assert record.label["dataset"] == config["dataset"]["name"]


def method(config: dict[str, Any]) -> str:
    """How the paper calls a gradient."""
    name, gradient = config["runtime"]["run"]["gradient"], config["gradient"]
    if name in ("implicit", "one_step"):
        return name.capitalize().replace("_", "-")
    return f"{name.upper()} A({gradient['steps']}, {float(gradient['damping'])})"
