"""SIGTERM, SIGUSR2 and Ctrl-C: requests to stop, which a run obeys between two steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from lightning.pytorch.utilities.exceptions import SIGTERMException


class Stopped(SIGTERMException):
    """A run that saved and stopped at a signal; the process exits as if the signal ended it."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)


class StopSignals:
    """Records SIGTERM, SIGINT and SIGUSR2 while a run trains; a second SIGINT stops it at once.

    SIGUSR2 is what submitit has SLURM send shortly before the time limit of a job. Lightning's own
    handler would communicate with the other processes from within the signal, in the middle of
    another exchange.

    Attributes:
        asked: the signal received, or 0. A run in its last epoch ends normally: its caller
            must check this attribute afterwards.
    """

    def __init__(self) -> None:
        self.asked = 0

    def listen(self) -> None:
        """Replace the present handlers; Lightning restores those from before ``fit``."""
        if threading.current_thread() is threading.main_thread():  # no other may
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
                signal.signal(signum, self._record)

    def _record(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self.asked:
            raise KeyboardInterrupt
        self.asked = signum


def leave_signals_to_main_process(worker: int) -> None:
    """Make a data-loading process ignore requests to stop; a ``worker_init_fn``.

    A scheduler signals every process of a job. If those that load data ended at once, the run would
    fail before it could save. They obey SIGTERM from the main process, by which Python ends them.
    """
    for signum in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    if not hasattr(signal, "sigwaitinfo"):  # macOS does not tell who sent a signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_obey_main_process, daemon=True).start()


def _obey_main_process() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
