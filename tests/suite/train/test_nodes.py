"""A run on two nodes, each with an address of its own: one folder, one record."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from interruptions import untimed
from training import ON_CPU, SCRIPT, finish_two

from phantomgrad_suite.runs.records import Record, read_record

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)

ROW = ("experiment=digits/one_step", "trainer=ddp", "trainer.max_epochs=2")


def start_node(rank: int, port: int, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the script under torchrun, as the node of that rank."""
    torchrun = (
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"),
        *(f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}"),
        f"--local-addr=127.0.0.{rank + 1}",
    )
    return subprocess.Popen(
        [*torchrun, str(SCRIPT), *arguments, ON_CPU],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def record_of(folder: Path) -> Record:
    (path,) = folder.glob("runs/**/record.json")
    return read_record(path)


def test_two_nodes_make_one_record(tmp_path: Path) -> None:
    """It equals that of two processes on one node: the same parts of batches, the same curves."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    spread = ("trainer.devices=1", "trainer.num_nodes=2")
    processes = [start_node(rank, port, two, *ROW, *spread) for rank in (0, 1)]
    for process in processes:
        out, _ = process.communicate()
        assert process.returncode == 0, out
    finish_two(one, *ROW, "trainer.devices=2")
    ours, one_node = record_of(two), record_of(one)
    assert ours.result == one_node.result
    assert untimed(ours) == untimed(one_node)
    assert "trainer.num_nodes=2" in ours.changes
