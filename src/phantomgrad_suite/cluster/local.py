"""Several runs at once on this machine, each in a process with a core or a GPU of its own."""

import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from omegaconf import DictConfig

from phantomgrad_suite.cluster.command import Command
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.formats import duration

LOG = "log.txt"
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_FORKS = sys.platform == "linux"  # elsewhere, not all system libraries survive it


def run_all(commands: Sequence[Command], settings: DictConfig, script: Path) -> None:
    """Run the commands, ``settings.jobs`` at a time, and print one line for each that has ended.

    A line begins with the number of runs that have ended and an estimate of the time left. A run
    writes into ``log.txt`` of its folder. One that fails stops no other; all are stopped with this
    process. A :class:`UserError` says that one failed, or a setting is out of range.
    """
    own = ",".join(map(str, range(torch.cuda.device_count())))
    gpus = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", own).split(",") if name]
    slots, count = _slots(commands, settings.jobs, gpus), len(commands)
    print(f"{count} run{'s' * (count != 1)}, {slots} at a time", flush=True)
    prepare(settings)
    started, handlers = time.monotonic(), {s: signal.signal(s, _exit) for s in _STOPPING}
    ended = failed = 0
    try:
        for command, code in _ended(commands, script, slots, gpus):
            ended, failed = ended + 1, failed + bool(code)
            left = (time.monotonic() - started) / ended * (count - ended)
            rest = f", about {duration(left)} left" if left else ""
            print(f"[{ended}/{count}{rest}] {_last_line(command, code)}", flush=True)
    finally:
        children = multiprocessing.active_children()
        for child in children:
            child.terminate()
        for child in children:
            child.join()
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
    if failed:
        raise UserError(f"{failed} of {count} runs failed: see their {LOG}")


def _ended(
    commands: Sequence[Command], script: Path, slots: int, gpus: Sequence[str]
) -> Iterator[tuple[Command, int]]:
    """Start each command as soon as a slot is free; yield it with its exit code when it ends."""
    waiting, free = deque(commands), deque(range(slots))
    width = _gpus_of_a_slot(commands)
    running: dict[Any, tuple[Command, Any, int]] = {}
    while waiting or running:
        while waiting and free:
            command, slot = waiting.popleft(), free.popleft()
            process = _start(command, script, slot * width, gpus)
            running[process.sentinel] = command, process, slot
        for command, process, slot in map(running.pop, wait(list(running), timeout=1)):
            process.join()
            free.append(slot)
            yield command, process.exitcode


def _last_line(command: Command, code: int) -> str:
    log = command.folder / LOG  # none yet if the process was killed at its start
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    return f"{command.name}: failed (exit code {code}): {last}" if code else last


def _exit(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def prepare(settings: DictConfig) -> None:
    """Start the process that runs are forked from, which imports what they need only once."""
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    if _FORKS:
        forkserver.set_forkserver_preload(["phantomgrad_suite.train", "phantomgrad_suite.study"])
        forkserver.ensure_running()


def _slots(commands: Sequence[Command], jobs: Any, gpus: Sequence[str]) -> int:
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise UserError(f"runtime.cluster.jobs must be a positive integer or null, got {jobs!r}")
    if (nodes := max((command.nodes for command in commands), default=1)) > 1:
        raise UserError(
            f"cluster=local has one node, a row has trainer.num_nodes={nodes}: use cluster=slurm"
        )
    needed = _gpus_of_a_slot(commands) if gpus else 0
    if needed > len(gpus):
        raise UserError(f"a row needs trainer.devices={needed} GPUs, this machine has {len(gpus)}")
    if jobs and needed > 1 and jobs * needed > len(gpus):
        raise UserError(
            f"runtime.cluster.jobs={jobs} runs of {needed} GPUs need {jobs * needed}, this machine "
            f"has {len(gpus)}"
        )
    cores = len(os.sched_getaffinity(0)) if _FORKS else os.cpu_count() or 1
    return jobs or (len(gpus) // needed if needed else cores)


def _gpus_of_a_slot(commands: Sequence[Command]) -> int:
    return max((command.devices for command in commands if command.gpu), default=0)


def _start(command: Command, script: Path, first_gpu: int, gpus: Sequence[str]) -> Any:
    """Start a run on GPUs of its own, in turn if there are more slots than GPUs."""
    environment = dict(os.environ)
    if command.gpu and gpus:
        numbers = range(first_gpu, first_gpu + command.devices)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[i % len(gpus)] for i in numbers)
    command.folder.mkdir(parents=True, exist_ok=True)
    # CUDA does not survive a fork.
    context: Any = multiprocessing.get_context(
        "forkserver" if _FORKS and not command.gpu else "spawn"
    )
    arguments = (script, command.arguments, command.folder / LOG, environment)
    process = context.Process(target=_run, args=arguments)
    process.start()
    return process


def _run(script: Path, arguments: Sequence[str], log: Path, environment: dict[str, str]) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()  # the fork server may have been started with other variables
    os.environ.update(environment)
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
