"""Several runs at once on this machine, each in a process with a core or a GPU of its own."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from omegaconf import DictConfig

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.runs.errors import UserError

LOG = "log.txt"
_FORKS = sys.platform == "linux"  # elsewhere, not all system libraries survive it


def run_all(commands: Sequence[Command], settings: DictConfig, script: Path) -> None:
    """Do the runs, ``settings.jobs`` at a time, and print one line for each that has ended.

    A run writes into ``log.txt`` of its folder. One that fails stops no other; all are stopped
    when this process is.

    Raises:
        UserError: a setting is out of range, or a run failed.
    """
    gpus = visible_gpus()
    slots = _slots(commands, settings.jobs, gpus)
    print(f"{len(commands)} runs, {slots} at a time", flush=True)
    prepare(settings)
    waiting, free, failed = deque(commands), deque(range(slots)), 0
    running: dict[int, tuple[BaseProcess, Command, int]] = {}
    with ExitStack() as stack:
        stack.callback(_stop, running)
        for signum in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, signum, signal.signal(signum, _exit))
        while waiting or running:
            while waiting and free:
                command, slot = waiting.popleft(), free.popleft()
                process = _start(command, script, _own_gpus(command, slot, gpus))
                running[process.sentinel] = process, command, slot
            for sentinel in wait(list(running)):
                process, command, slot = running.pop(sentinel)  # type: ignore[index]
                process.join()
                failed += _report(command, process.exitcode)
                free.append(slot)
    if failed:
        raise UserError(f"{failed} of {len(commands)} runs failed: see their {LOG}")


def prepare(settings: DictConfig) -> None:
    """Start the process that runs are forked from, which imports what they need only once."""
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    if _FORKS:
        forkserver.set_forkserver_preload(["phantomgrad_suite.train", "phantomgrad_suite.study"])
        forkserver.ensure_running()


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(i) for i in range(torch.cuda.device_count())]


def _slots(commands: Sequence[Command], jobs: Any, gpus: Sequence[str]) -> int:
    """Return how many runs may go on at the same time."""
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise UserError(f"cluster.jobs must be a positive integer or null, got {jobs!r}")
    needed = max((command.devices for command in commands if command.gpu and gpus), default=0)
    if needed > len(gpus):
        raise UserError(f"a row needs trainer.devices={needed} GPUs, this machine has {len(gpus)}")
    if jobs is not None:
        return int(jobs)
    if needed:
        return len(gpus) // needed
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _own_gpus(command: Command, slot: int, gpus: Sequence[str]) -> dict[str, str]:
    """Deal the GPUs out among the slots, in turn if there are more slots than GPUs."""
    if not (command.gpu and gpus):
        return {}
    first = slot * command.devices
    own = [gpus[(first + i) % len(gpus)] for i in range(command.devices)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}


def _start(command: Command, script: Path, environment: dict[str, str]) -> BaseProcess:
    # CUDA does not survive a fork.
    context = multiprocessing.get_context("forkserver" if _FORKS and not command.gpu else "spawn")
    command.folder.mkdir(parents=True, exist_ok=True)
    arguments = (script, command.arguments, command.folder / LOG, environment)
    process = context.Process(target=_run, args=arguments)
    process.start()
    return process


def _run(script: Path, arguments: Sequence[str], log: Path, environment: dict[str, str]) -> None:
    """Run the script in a process of its own."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")


def _report(command: Command, code: int | None) -> bool:
    """Print the last line of a run, without the progress bars before it; return if it failed."""
    lines = (command.folder / LOG).read_text(errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    print(f"{command.name}: failed (exit code {code}): {last}" if code else last, flush=True)
    return bool(code)


def _exit(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def _stop(running: dict[int, tuple[BaseProcess, Command, int]]) -> None:
    for process, *_ in running.values():
        process.terminate()
    for process, *_ in running.values():
        process.join()
