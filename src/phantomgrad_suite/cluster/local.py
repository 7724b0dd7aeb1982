"""Several runs at once on this machine, each in a process with a core or a GPU of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.runs.errors import UserError

LOG = "log.txt"
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class _Started:
    command: Command
    process: subprocess.Popen[bytes]
    slot: int

    def last_line(self) -> str:
        """Return what the run said at last, without the progress bars in front of it."""
        lines = (self.command.folder / LOG).read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def run_all(commands: Sequence[Command], settings: DictConfig, script: Path) -> None:
    """Do the runs, ``settings.jobs`` at a time, and say in a line what each has come to.

    A run writes into ``log.txt`` of its folder. One that fails stops no other.

    Raises:
        UserError: a setting is out of range, or a run has failed.
    """
    gpus = visible_gpus()
    slots = _slots(commands, settings.jobs, gpus)
    print(f"{len(commands)} runs, {slots} at a time", flush=True)
    waiting, running, failed = deque(commands), list[_Started](), 0
    try:
        while waiting or running:
            free = sorted(set(range(slots)) - {started.slot for started in running})
            for slot in free[: len(waiting)]:
                command = waiting.popleft()
                own = {"OMP_NUM_THREADS": str(settings.threads)} | _own_gpus(command, slot, gpus)
                running.append(_Started(command, _start(command, script, own), slot))
            time.sleep(_POLL_SECONDS)
            for started in [s for s in running if s.process.poll() is not None]:
                running.remove(started)
                failed += not _succeeded(started)
    finally:  # no run goes on without who has started it
        _end(running)
    if failed:
        raise UserError(f"{failed} of {len(commands)} runs have failed: see their {LOG}")


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(i) for i in range(torch.cuda.device_count())]


def _slots(commands: Sequence[Command], jobs: Any, gpus: Sequence[str]) -> int:
    """Return how many runs may go on at the same time."""
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise UserError(f"cluster.jobs must be a positive integer, or null, got {jobs!r}")
    needed = max((command.devices for command in commands if command.gpu and gpus), default=0)
    if needed > len(gpus):
        raise UserError(f"a row needs trainer.devices={needed} GPUs, this machine has {len(gpus)}")
    if jobs is not None:
        return int(jobs)
    return len(gpus) // needed if needed else _cores()


def _cores() -> int:
    """Return how many cores this process may use, where the system tells (macOS does not)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _own_gpus(command: Command, slot: int, gpus: Sequence[str]) -> dict[str, str]:
    """Deal the GPUs out among the slots, in turn where there are more slots than GPUs."""
    if not (command.gpu and gpus):
        return {}
    first = slot * command.devices
    own = [gpus[(first + i) % len(gpus)] for i in range(command.devices)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}


def _start(command: Command, script: Path, own: dict[str, str]) -> subprocess.Popen[bytes]:
    command.folder.mkdir(parents=True, exist_ok=True)
    with (command.folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(script), *command.arguments],
            env={**os.environ, **own},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _succeeded(started: _Started) -> bool:
    code, said = started.process.returncode, started.last_line()
    if code:
        print(f"{started.command.name}: failed (exit code {code}): {said}", flush=True)
    else:
        print(said, flush=True)
    return not code


def _end(running: Sequence[_Started]) -> None:
    for started in running:
        started.process.terminate()
    for started in running:
        started.process.wait()
