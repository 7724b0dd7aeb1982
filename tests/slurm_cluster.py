"""A private SLURM of one node, on ports of its own, for tests of real jobs."""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
# No accounting, no cgroups, no authentication: it runs in a container, for any user.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
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
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=8000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


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
        said = self.ask("scontrol", "show", "job", job, "--oneliner")
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def start_now(self, job: str) -> None:
        """Do not wait two minutes, as SLURM has a requeued job do."""
        self.ask("scontrol", "update", f"JobId={job}", "StartTime=now")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Start it, or skip with the reason; at the end, stop its jobs and its daemons."""
    folder = tmp_path_factory.mktemp("slurm")
    paths = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=paths) is None]
    if missing:
        pytest.skip(f"SLURM is not installed: there is no {', '.join(missing)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", paths)
        patch.setenv("SLURM_CONF", str(_configure(folder)))
        daemons = [_daemon(name, folder) for name in ("slurmctld", "slurmd")]
        try:
            _await_node(daemons, folder)
            yield Slurm(folder)
            subprocess.run(["scancel", "--user", getpass.getuser()], check=False, timeout=30)
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(timeout=30)


def _configure(folder: Path) -> Path:
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = platform.node().split(".")[0]
    path = folder / "slurm.conf"
    user = getpass.getuser()
    path.write_text(CONFIGURATION.format(host=host, user=user, folder=folder, ports=_free_ports()))
    return path


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]


def _daemon(name: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.out").open("wb") as out:
        return subprocess.Popen([name, "-D"], stdout=out, stderr=subprocess.STDOUT)


def _await_node(daemons: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait until the node takes jobs; skip where a daemon gives up before, or none does."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and all(daemon.poll() is None for daemon in daemons):
        done = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, check=False)
        if done.stdout.strip() == b"idle":
            return
        time.sleep(0.2)
    logs = [*folder.glob("*.out"), *folder.glob("*.log")]
    said = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    wrong = [line for line in said if "error" in line or "fatal" in line] or ["no node got ready"]
    pytest.skip(f"SLURM does not start here: {wrong[-1]}")
