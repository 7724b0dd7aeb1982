"""SIGTERM and Ctrl-C: wishes that a run meets between two steps."""

from __future__ import annotations

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


class StopSignals:
    """Hears SIGTERM and SIGINT while a run trains.

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
            for signum in (signal.SIGTERM, signal.SIGINT):
                signal.signal(signum, self._ask)

    def _ask(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self.asked:
            raise KeyboardInterrupt  # asked twice: at once
        self.asked = signum
