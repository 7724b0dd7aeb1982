"""The folder of a run: its lock, its checkpoints, and whether it still has to be executed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_any


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its checkpoints, its logs and, when it is finished, its record."""

    path: Path

    @property
    def record(self) -> Path:
        """The record; it exists exactly when the run is finished."""
        return self.path / "record.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint that a restart resumes from."""
        return self.checkpoints / "last.ckpt"

    def finished(self, config_hash: str) -> bool:
        """Return whether this run is finished.

        Raises:
            UserError: the record is unreadable, or belongs to another configuration.
        """
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

        Raises:
            UserError: the folder cannot be written or locked.
        """
        lock = FileLock(self.path / ".lock", timeout=0, fallback_to_soft=False)
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
