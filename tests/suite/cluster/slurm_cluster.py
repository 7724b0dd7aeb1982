"""A private SLURM of one node or two, on ports of its own, for tests of real jobs."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from training import Script

JOBS = (
    "cluster=slurm",
    "runtime.cluster.mem_gb=1",
    "runtime.cluster.cpus_per_task=1",
    "runtime.cluster.minutes=10",
)
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
# No accounting, no cgroups, no authentication: it runs in a container, for any user.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n.spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
{nodes}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=8000"
# A machine of its own for slurmd and its jobs, with its own name and hosts file.
MACHINE = "hostname {name} && mount --bind {hosts} /etc/hosts && exec slurmd -D"


@dataclass(frozen=True)
class Slurm:
    """A SLURM that takes jobs, for as long as ``SLURM_CONF`` names its configuration."""

    folder: Path

    def ask(self, *command: str) -> str:
        """Return what one of SLURM's commands prints."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        return done.stdout

    def state(self, job: str) -> dict[str, str]:
        """Return what ``scontrol`` knows of a job."""
        output = self.ask("scontrol", "show", "job", job, "--oneliner")
        return dict(word.split("=", 1) for word in output.split() if "=" in word)

    def start_soon(self, job: str) -> None:
        """Do not wait two minutes, as SLURM has a requeued job do.

        Within a second it would not start at all: a node takes no credential as old as the
        end of the job's last attempt ("Job credential revoked").
        """
        self.ask("scontrol", "update", f"JobId={job}", "StartTime=now+3")


def submitted(script: Script, *overrides: str) -> dict[str, str]:
    """Submit the runs of these overrides; return the number of the job of each run."""
    outcome = script(*overrides, *JOBS)
    assert outcome.code == 0, outcome.err
    return {name: job for job, name in re.findall(r"^job (\S+): (.*)$", outcome.out, re.M)}


def wait_for(what: Callable[[], object], seconds: float = 180) -> None:
    """Wait until ``what()`` is true, or fail."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """One node, under this machine's own name."""
    here = platform.node().split(".")[0]
    with _cluster(tmp_path_factory.mktemp("slurm"), {here: ("slurmd", "-D")}) as started:
        yield started


@pytest.fixture(scope="module")
def slurm_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes of other names, which only they themselves can resolve."""
    folder = tmp_path_factory.mktemp("slurm")
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost alpha\n127.0.0.2 beta\n")
    apart = ("unshare", "--mount", "--uts")
    if subprocess.run([*apart, "mount", "--bind", hosts, hosts], check=False).returncode:
        pytest.skip("namespaces for nodes cannot be made here")
    machines = {
        name: (*apart, "sh", "-c", MACHINE.format(name=name, hosts=hosts))
        for name in ("alpha", "beta")
    }
    with _cluster(folder, machines) as started:
        yield started


@contextmanager
def _cluster(folder: Path, nodes: dict[str, tuple[str, ...]]) -> Iterator[Slurm]:
    """Start it, or skip with the reason; at the end, stop its jobs and its daemons."""
    paths = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=paths) is None]
    if missing:
        pytest.skip(f"SLURM is not installed: there is no {', '.join(missing)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", paths)
        patch.setenv("SLURM_CONF", str(_configure(folder, list(nodes))))
        commands = {"slurmctld": ("slurmctld", "-D"), **nodes}
        daemons = [_daemon(command, folder / f"{n}.out") for n, command in commands.items()]
        try:
            _await_nodes(daemons, folder, len(nodes))
            yield Slurm(folder)
            subprocess.run(["scancel", "--user", getpass.getuser()], check=False, timeout=30)
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(timeout=30)


def _configure(folder: Path, nodes: list[str]) -> Path:
    (folder / "state").mkdir()
    port, *ports = _free_ports(1 + len(nodes))
    for name in nodes:
        (folder / f"{name}.spool").mkdir()
    lines = [NODE.format(name=n, port=p) for n, p in zip(nodes, ports, strict=True)]
    values = {"host": platform.node().split(".")[0], "user": getpass.getuser(), "port": port}
    path = folder / "slurm.conf"
    path.write_text(CONFIGURATION.format(folder=folder, nodes="\n".join(lines), **values))
    return path


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _daemon(command: tuple[str, ...], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)


def _await_nodes(daemons: list[subprocess.Popen[bytes]], folder: Path, number: int) -> None:
    """Wait until the nodes take jobs; skip where a daemon gives up before, or they do not."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and all(daemon.poll() is None for daemon in daemons):
        done = subprocess.run(["sinfo", "-N", "-h", "-o", "%T"], capture_output=True, check=False)
        if done.stdout.split() == [b"idle"] * number:
            return
        time.sleep(0.2)
    logs = [*folder.glob("*.out"), *folder.glob("*.log")]
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    wrong = [line for line in lines if "error" in line or "fatal" in line] or ["no node got ready"]
    pytest.skip(f"SLURM does not start here: {wrong[-1]}")
