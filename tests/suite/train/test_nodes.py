"""A run on two nodes, each with an address of its own: one folder, one record."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from training import ON_CPU, SCRIPT, start

from phantomgrad_suite.runs.records import Record, read_record

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)

ROW = ("experiment=digits/one_step", "trainer=ddp", "trainer.max_epochs=2")


@dataclass(frozen=True)
class Node:
    """A node.

    Args:
        address: by which the other one knows it.
        prefix: of commands that are to run on it.
        interface: of its network.
    """

    address: str
    prefix: tuple[str, ...] = ()
    interface: str = "lo"

    def start(
        self, rank: int, master: str, port: int, folder: Path, *arguments: str
    ) -> subprocess.Popen[str]:
        """Start the script under torchrun."""
        torchrun = (
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"),
            *(f"--node-rank={rank}", f"--master-addr={master}", f"--master-port={port}"),
            f"--local-addr={self.address}",
        )
        return subprocess.Popen(
            [*self.prefix, *torchrun, str(SCRIPT), *arguments, ON_CPU],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": self.interface},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def loopback() -> list[Node]:
    """Two addresses of this machine."""
    return [Node("127.0.0.1"), Node("127.0.0.2")]


@pytest.fixture
def namespaces() -> Iterator[list[Node]]:
    """Two network namespaces with a cable between them: what is not there cannot be reached."""
    ip = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if ip is None:
        pytest.skip("the program ip is not installed")
    names = [f"phantomgrad{os.getpid()}{side}" for side in "ab"]
    ends = [f"pg{os.getpid()}{side}" for side in "ab"]
    with ExitStack() as stack:
        for name in names:
            made = subprocess.run([ip, "netns", "add", name], capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
            stack.callback(subprocess.run, [ip, "netns", "del", name], check=True)
        cable = ("type", "veth", "peer", "name", ends[1], "netns", names[1])
        subprocess.run([ip, "link", "add", ends[0], "netns", names[0], *cable], check=True)
        for name, end, host in zip(names, ends, (1, 2), strict=True):
            for command in (f"addr add 10.77.0.{host}/24 dev {end}", f"link set {end} up"):
                subprocess.run([ip, "-n", name, *command.split()], check=True)
            subprocess.run([ip, "-n", name, "link", "set", "lo", "up"], check=True)
        yield [
            Node(f"10.77.0.{host}", (ip, "netns", "exec", name), end)
            for name, end, host in zip(names, ends, (1, 2), strict=True)
        ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def record_of(folder: Path) -> Record:
    (path,) = folder.glob("runs/**/record.json")
    return read_record(path)


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The record of the same run, its two processes on one node."""
    folder = tmp_path_factory.mktemp("one")
    alone = start(folder, *ROW, "trainer.devices=2", OMP_NUM_THREADS="1")
    out, _ = alone.communicate(timeout=240)
    assert alone.returncode == 0, out
    return record_of(folder)


@pytest.mark.parametrize("network", ["loopback", "namespaces"])
def test_two_nodes_make_one_record(
    tmp_path: Path, request: pytest.FixtureRequest, network: str, one_node: Record
) -> None:
    """That of two processes on one node: the same parts of every batch, the same curves."""
    nodes: list[Node] = request.getfixturevalue(network)
    port, spread = free_port(), ("trainer.devices=1", "trainer.num_nodes=2")
    processes = [
        node.start(rank, nodes[0].address, port, tmp_path, *ROW, *spread)
        for rank, node in enumerate(nodes)
    ]
    for process in processes:
        out, _ = process.communicate(timeout=240)
        assert process.returncode == 0, out
    ours = record_of(tmp_path)
    assert ours.result == one_node.result
    assert ours.curves == one_node.curves
    assert "trainer.num_nodes=2" in ours.changes
