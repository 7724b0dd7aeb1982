"""The last attempt at a run, written to its folder: which process holds it, and why it failed.

``make status`` shows it. It is not part of the result: if the disk refuses it, the run goes on.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
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
    attempt = {"host": platform.node(), "job": job, **facts}
    with suppress(OSError):
        write_json(attempt, folder / FILE)
    try:
        yield
    except BaseException as error:
        was_stopped = isinstance(error, SystemExit | KeyboardInterrupt)
        end = {"stopped": True} if was_stopped else {"failed": _in_a_line(error)}
        with suppress(OSError):
            write_json({**attempt, **end}, folder / FILE)
        raise
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def read_attempt(folder: Path) -> dict[str, Any]:
    """Return the content of ``attempt.json``, empty if it cannot be read."""
    with suppress(OSError, ValueError):
        attempt = json.loads((folder / FILE).read_text())
        return attempt if isinstance(attempt, dict) else {}
    return {}


def _in_a_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if isinstance(error, UserError) and lines:
        return lines[0]
    return ": ".join([type(error).__name__, *lines[:1]])
