"""Other processes: those of a distributed run that are gone, and those of a run that ends."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed import DistError

from phantomgrad_suite.runs.errors import UserError

# What gloo says, as plain RuntimeErrors; NCCL has errors of its own.
_SIGNS = ("closed by peer", "reset by peer", "broken pipe", "timed out waiting", "socket timeout")


@contextmanager
def loss_said() -> Iterator[None]:
    """Turn the error of a process that waits in vain into a sentence.

    Raises:
        UserError: another process of the run was lost.
    """
    try:
        yield
    except RuntimeError as error:
        lines = str(error).strip().splitlines() or [repr(error)]
        if not isinstance(error, DistError) and not any(s in str(error).lower() for s in _SIGNS):
            raise
        raise UserError(
            "another process of this run was lost, or hangs; its own last words say why. The same "
            f"command goes on from the last checkpoint ({lines[0]})"
        ) from error


@contextmanager
def none_left() -> Iterator[None]:
    """End the processes that were begun inside and are still there.

    Those that load data wait to be told by an iterator, which an error keeps alive, until the
    interpreter ends them at its own end: that may be many runs of a table from here.
    """
    before = set(multiprocessing.active_children())
    try:
        yield
    finally:
        with _unheard(signal.SIGCHLD):  # torch would take it for the loss of a process
            for process in set(multiprocessing.active_children()) - before:
                process.kill()
                process.join()


@contextmanager
def _unheard(signum: signal.Signals) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # no other may
        yield
        return
    handler = signal.signal(signum, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signum, handler or signal.SIG_DFL)
