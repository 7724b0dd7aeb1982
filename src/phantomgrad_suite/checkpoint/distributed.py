"""The processes of a distributed run, and those that load data."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed

from phantomgrad_suite.runs.errors import UserError

# gloo raises plain RuntimeErrors with these messages; NCCL raises errors of its own type.
_LOST = ("closed by peer", "reset by peer", "broken pipe", "timed out waiting", "socket timeout")


def of_all_processes(state: Any) -> list[Any]:
    """Return the state of each process by rank; every process must call this."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return [state]
    states = [state] * distributed.get_world_size()
    distributed.all_gather_object(states, state)
    return states


def of_this_process(states: list[Any]) -> Any:
    """Return this process's state; the first if fewer processes saved."""
    joined = distributed.is_available() and distributed.is_initialized()
    rank = distributed.get_rank() if joined else 0
    return states[rank if rank < len(states) else 0]


@contextmanager
def explain_lost_worker() -> Iterator[None]:
    """Turn the error of a process that waits for a lost one into a :class:`UserError`."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).strip() or repr(error)
        lost = isinstance(error, distributed.DistError)
        if not lost and not any(s in message.lower() for s in _LOST):
            raise
        raise UserError(
            "another process of this run was lost or hangs: its own output says why. The same "
            f"command resumes from the last checkpoint ({message.splitlines()[0]})"
        ) from error


def leave_signals_to_main_process(worker: int) -> None:
    """Make a data-loading process ignore requests to stop.

    A scheduler signals every process of a job. If those that load data ended at once, the run would
    fail before it could save.
    """
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
