"""A run on two nodes: one folder, one record."""

from pathlib import Path

import pytest
import torch
from interruptions import untimed
from training import finish_two

from phantomgrad_suite.runs.records import Record, read_record

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)

ROW = ("experiment=digits/one_step", "trainer=ddp", "trainer.max_epochs=1")


def record_of(folder: Path) -> Record:
    (path,) = folder.glob("runs/**/record.json")
    return read_record(path)


def test_two_nodes_make_one_record(tmp_path: Path) -> None:
    """It equals that of two processes on one node: the same parts of batches, the same curves."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    finish_two(one, *ROW, "trainer.devices=2")
    finish_two(two, *ROW, "trainer.devices=1", "trainer.num_nodes=2", nodes=2)
    ours, one_node = record_of(two), record_of(one)
    assert ours.result == one_node.result
    assert untimed(ours) == untimed(one_node)
    assert "trainer.num_nodes=2" in ours.changes
