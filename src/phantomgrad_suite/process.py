"""The first lines of each command, before it imports what reads the environment."""

import locale
import os
import sys
from types import TracebackType

from phantomgrad_suite.runs.errors import UserError

_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "SLURM_NTASKS")


def start() -> None:
    """Start again with UTF-8 if the locale has another encoding; check the variables of processes.

    Ctrl-C and errors that a user can put right end the command without a traceback.
    """
    if locale.getencoding().lower() not in ("utf-8", "utf8") and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for name in _RANKS:
        if not (value := os.environ.get(name) or "0").isdecimal():
            sys.exit(f"{name} must be a non-negative integer, got {value!r}: correct or unset it")
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
