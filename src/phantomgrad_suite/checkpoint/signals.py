"""SIGTERM, SIGUSR2 and Ctrl-C: wishes that a run meets between two steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from lightning.pytorch.utilities.exceptions import SIGTERMException


class Stopped(SIGTERMException):
    """A run that has stopped at a signal, with a checkpoint; ends the process as signals do.

    Args:
        signum: the signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)


def left_to_the_main_process(worker: int) -> None:
    """Have a process that loads data ignore what asks the run to stop; for ``worker_init_fn``.

    A scheduler tells every process of a job. Were those that load data to end at once, the run
    would fail for want of data before it could save where it stands. They end with it: SIGTERM from
    the main process, which is how Python ends what it has begun, is heard.
    """
    for signum in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    if not hasattr(signal, "sigwaitinfo"):  # macOS does not tell who sends a signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_when_told, daemon=True).start()


def _end_when_told() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


class StopSignals:
    """Hears SIGTERM, SIGINT and SIGUSR2 while a run trains.

    The last is how submitit has SLURM tell a job that its time is nearly up. A run that is at its
    end is finished first, whoever runs it has to look at ``asked`` then.

    Lightning's own handler speaks to the other processes from within the signal, in the middle of
    whatever they are exchanging.

    Attributes:
        asked: the signal that was heard, 0 before.
    """

    def __init__(self) -> None:
        self.asked = 0

    def listen(self) -> None:
        """Take the place of the present handlers; Lightning puts back what was there before fit."""
        if threading.current_thread() is threading.main_thread():  # no other may
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
                signal.signal(signum, self._ask)

    def _ask(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self.asked:
            raise KeyboardInterrupt  # asked twice: at once
        self.asked = signum
