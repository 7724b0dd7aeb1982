"""The last attempt at a run, written to its folder: its process, how far it is, why it failed.

``make status`` shows it. It is not part of the result: if the disk refuses it, the run goes on.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import write_json

FILE = "attempt.json"


@contextmanager
def log_attempt(folder: Path, **facts: Any) -> Iterator[None]:
    """Write ``attempt.json`` when a run starts, and add why it failed or when it was stopped.

    A finished run removes the file; a killed one leaves it as it was written at the start.
    """
    _write(folder, {**_process(), **facts})
    try:
        with log_failure(folder):
            yield
    except (SystemExit, KeyboardInterrupt):
        _write(folder, {**_process(), **read_attempt(folder), "stopped": _now()})
        raise
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


@contextmanager
def log_failure(folder: Path) -> Iterator[None]:
    """Add the error to ``attempt.json``, unless another process of the run was first."""
    try:
        yield
    except Exception as error:
        attempt = read_attempt(folder)
        if "failed" not in attempt:
            attempt = {**_process(), **attempt, "failed": _first_line(error), "ended": _now()}
            _write(folder, attempt)
        raise


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


def _process() -> dict[str, Any]:
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    return {
        "host": platform.node(),
        "pid": os.getpid(),
        "job": f"{job}_{task}" if job and task else job,
        "started": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    if isinstance(error, UserError) and lines:
        return lines[0]
    return ": ".join([type(error).__name__, *lines[:1]])


def _write(folder: Path, attempt: Mapping[str, Any]) -> None:
    with suppress(OSError):
        write_json(attempt, folder / FILE)
