"""Commands end in one line at Ctrl-C, and at an error that their user can put right."""

import os
import sys
from types import TracebackType

from phantomgrad_suite.runs.errors import UserError


def brief_errors() -> None:
    """Report errors so; the first line of each command, before imports that take seconds."""
    sys.excepthook = _report


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    elif issubclass(kind, UserError):
        print(error, file=sys.stderr)
    elif issubclass(kind, BrokenPipeError):  # its reader, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    else:
        sys.__excepthook__(kind, error, trace)
