"""The folder of a run: its lock, its record, and the note on its last attempt.

The note, ``attempt.json``, is for ``make status``: if the disk refuses it, the run goes on.
"""

import errno
import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from phantomgrad_suite.runs.errors import SettingError, UserError
from phantomgrad_suite.runs.records import read_any, write_json

ATTEMPT = "attempt.json"
_LOCK = ".lock"
_PROBED = 0.1  # seconds: longer than another process probes the lock


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def record(self) -> Path:
        """The record; it exists exactly when the run is finished."""
        return self.path / "record.json"

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint that a restart resumes from."""
        return self.path / "checkpoints" / "last.ckpt"

    def finished(self, config_hash: str) -> bool:
        """Return whether this run is finished; raise if its record is of another configuration."""
        if not self.record.exists():
            return False
        if read_any(self.record).config_hash != config_hash:
            raise UserError(
                f"{self.path} holds a finished run of another configuration (the experiment was "
                "changed since): move it away, or choose another runtime.paths.runs"
            )
        return True

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Lock the folder for this process; yields ``False`` if another process holds it.

        The lock ends with the process, however it ends. The same command may therefore be started
        several times: each process takes the runs that no other one executes.
        """
        file = self.path / _LOCK
        lock = FileLock(file, timeout=_PROBED, poll_interval=_PROBED / 4, fallback_to_soft=False)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            yield False
            return
        except (NotImplementedError, OSError) as error:
            if getattr(error, "errno", None) == errno.ENOSPC:
                raise
            raise UserError(
                f"{self.path} cannot be written or locked ({error}): choose another "
                "runtime.paths.runs"
            ) from error
        try:
            yield True
        finally:
            lock.release()

    @property
    def is_locked(self) -> bool:
        """Whether a process of this machine executes the run."""
        try:
            with (self.path / _LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # there is none, or this file system has no locks
            return False
        return False


@contextmanager
def log_attempt(folder: Path, **facts: Any) -> Iterator[None]:
    """Write ``attempt.json`` when a run starts, and add why it failed or that it was stopped.

    A finished run removes the file; a killed one leaves it as it was written at the start. A
    setting that cannot work leaves it as it was before.
    """
    before = read_attempt(folder)
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if job and (task := os.environ.get("SLURM_ARRAY_TASK_ID")):
        job = f"{job}_{task}"
    _note(folder, {"host": platform.node(), "pid": os.getpid(), "job": job, **facts})
    try:
        yield
    except SettingError:
        if before:
            _note(folder, before)
        else:
            (folder / ATTEMPT).unlink(missing_ok=True)
        raise
    except BaseException as error:
        lines = str(error).strip().splitlines()[:1]
        kind = [] if isinstance(error, UserError) and lines else [type(error).__name__]
        was_stopped = isinstance(error, SystemExit | KeyboardInterrupt)
        end = {"stopped": True} if was_stopped else {"failed": ": ".join(kind + lines)}
        _note(folder, {**read_attempt(folder), **end})
        raise
    with suppress(OSError):
        (folder / ATTEMPT).unlink(missing_ok=True)


def log_epoch(folder: Path, epoch: int) -> None:
    """Add the epoch of a new checkpoint, from 1."""
    if attempt := read_attempt(folder):
        _note(folder, {**attempt, "epoch": epoch})


def read_attempt(folder: Path) -> dict[str, Any]:
    """Return the content of ``attempt.json``, empty if it cannot be read."""
    with suppress(OSError, ValueError):
        attempt = json.loads((folder / ATTEMPT).read_text())
        return attempt if isinstance(attempt, dict) else {}
    return {}


def _note(folder: Path, attempt: Mapping[str, Any]) -> None:
    with suppress(OSError):
        write_json(attempt, folder / ATTEMPT)
