"""The last attempt at a run, written to its folder: its process, how far it is, why it failed.

``make status`` shows it. It is not part of the result: if the disk refuses it, the run goes on.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import write_json

FILE = "attempt.json"


@contextmanager
def log_attempt(folder: Path, **facts: Any) -> Iterator[None]:
    """Write ``attempt.json`` when a run starts, and add why it failed or that it was stopped.

    A finished run removes the file; a killed one leaves it as it was written at the start.
    """
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if job and (task := os.environ.get("SLURM_ARRAY_TASK_ID")):
        job = f"{job}_{task}"
    _write(folder, {"host": platform.node(), "pid": os.getpid(), "job": job, **facts})
    try:
        yield
    except BaseException as error:
        was_stopped = isinstance(error, SystemExit | KeyboardInterrupt)
        end = {"stopped": True} if was_stopped else {"failed": _in_a_line(error)}
        _write(folder, {**read_attempt(folder), **end})
        raise
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def log_epoch(folder: Path, epoch: int) -> None:
    """Add the epoch of a new checkpoint, from 1."""
    if attempt := read_attempt(folder):
        _write(folder, {**attempt, "epoch": epoch})


def read_attempt(folder: Path) -> dict[str, Any]:
    """Return the content of ``attempt.json``, empty if it cannot be read."""
    with suppress(OSError, ValueError):
        attempt = json.loads((folder / FILE).read_text())
        return attempt if isinstance(attempt, dict) else {}
    return {}


def _write(folder: Path, attempt: Mapping[str, Any]) -> None:
    with suppress(OSError):
        write_json(attempt, folder / FILE)


def _in_a_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if isinstance(error, UserError) and lines:
        return lines[0]
    return ": ".join([type(error).__name__, *lines[:1]])
