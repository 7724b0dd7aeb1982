"""The last attempt at a run, noted in its folder: who is at it, or what it has failed by.

This is what ``make status`` shows. The note is no part of the result: a disk that takes none stops
no run.
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

NOTE = "attempt.json"


@contextmanager
def noted(folder: Path, **facts: Any) -> Iterator[None]:
    """Note in ``folder`` that a run has begun, over what was noted before; if it fails, by what.

    A run that is finished needs no note; one that was killed leaves the note of its beginning, and
    one that was stopped adds when.
    """
    _write(folder, {**_who(), **facts})
    try:
        with failure_noted(folder):
            yield
    except (SystemExit, KeyboardInterrupt):
        _write(folder, {**_who(), **read_note(folder), "stopped": _now()})
        raise
    with suppress(OSError):
        (folder / NOTE).unlink(missing_ok=True)


@contextmanager
def failure_noted(folder: Path) -> Iterator[None]:
    """Note in ``folder`` what a run has failed by, unless another process of it was first."""
    try:
        yield
    except Exception as error:
        note = read_note(folder)
        if "failed" not in note:
            _write(folder, {**_who(), **note, "failed": _in_a_line(error), "ended": _now()})
        raise


def read_note(folder: Path) -> dict[str, Any]:
    """Return what is noted in ``folder``, nothing if nothing can be read."""
    with suppress(OSError, ValueError):
        note = json.loads((folder / NOTE).read_text())
        return note if isinstance(note, dict) else {}
    return {}


def _who() -> dict[str, Any]:
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


def _in_a_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    if isinstance(error, UserError) and lines:
        return lines[0]
    return ": ".join([type(error).__name__, *lines[:1]])


def _write(folder: Path, note: Mapping[str, Any]) -> None:
    with suppress(OSError):
        write_json(note, folder / NOTE)
