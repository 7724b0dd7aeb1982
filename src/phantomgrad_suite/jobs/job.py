"""One job, a training run or a study: skip it, leave it to another process, or execute it."""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from phantomgrad_suite.jobs.compose import identity_of, recorded
from phantomgrad_suite.jobs.processes import (
    has_several_processes,
    is_first_process,
    is_started_with_others,
)
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.files import check_writable
from phantomgrad_suite.runs.folder import RunFolder, log_attempt
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import AnyRecord, read_any, write_record

log = logging.getLogger(__name__)

_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "the disk is full: make room"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "it must be a folder: move it away"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable"),
}


@dataclass(frozen=True)
class Job:
    """A job in its folder."""

    identity: Identity
    folder: RunFolder
    pending: bool
    """Whether this process has to execute it."""
    record: AnyRecord | None = None
    """The record, if it was finished before."""
    writes: bool = False
    """Whether this process writes the record."""
    results: Archive | None = None
    """Where it is written too, if the run is that of its row."""

    def finish(self, record: AnyRecord) -> None:
        """Write the record; that in the folder marks the run as finished, and so comes last."""
        if self.results:
            self.results.add(record)
        if self.writes:
            write_record(record, self.folder.record)


@contextmanager
def open_job(config: DictConfig) -> Iterator[Job]:
    """Lock the job that ``config`` describes; it is not pending if finished or executed elsewhere.

    Fills in ``runtime.run``. The first of several processes that were started together exits with 1
    if another launch executes the job: the others would wait for it, and so torchrun and srun end
    them. When it raises :class:`UserError`, nothing has been overwritten.
    """
    identity, runtime = identity_of(config), config.runtime
    folder = RunFolder(_folder(runtime, "runs") / identity.row / identity.instance)
    results = None if identity.is_changed else Archive(_folder(runtime, "records"))
    place = {"row": identity.row, "instance": identity.instance, "folder": str(folder.path)}
    runtime.run.update(**place, changes=[*identity.changes])
    if not is_first_process() and has_several_processes(config):
        # The first process holds the lock, and writes the record.
        yield Job(identity, folder, pending=not folder.finished(identity.config_hash))
        return
    with _external_errors_in_a_line(folder), folder.locked() as acquired:
        if not acquired and has_several_processes(config) and is_started_with_others():
            sys.exit(f"{identity}: another launch executes this run; this one ends")
        if not acquired:
            log.info("%s: skipped, another process executes it", identity)
            yield Job(identity, folder, pending=False)
        elif folder.finished(identity.config_hash):
            record = read_any(folder.record)
            end = "diverged" if getattr(record, "diverged", None) else "finished"
            log.info("%s: %s, skipped (%s)", identity, end, folder.record)
            if results and not results.holds(record):
                results.add(record)
            yield Job(identity, folder, pending=False, record=record)
        else:
            check_writable(folder.path)
            if results:
                check_writable(results.folder)
            epochs = (config.get("trainer") or {}).get("max_epochs")
            with log_attempt(folder.path, epochs=epochs, dataset=config.label.get("dataset")):
                yield Job(identity, folder, pending=True, writes=True, results=results)


def _folder(runtime: DictConfig, name: str) -> Path:
    path = runtime.paths[name]
    if not isinstance(path, str) or not path:
        raise UserError(f"runtime.paths.{name} must be a folder, got {path!r}")
    return Path(path)


def origin(config: DictConfig, identity: Identity) -> dict[str, Any]:
    """Return what records and checkpoints state about their run."""
    return {
        "row": identity.row,
        "instance": identity.instance,
        "config": recorded(config),
        "config_hash": identity.config_hash,
        "started": now(),
    }


def protocol(config: DictConfig, identity: Identity, *more: str) -> dict[str, Any]:
    """Return ``protocol`` and ``changes`` of a record: how it differs from the full protocol."""
    changes = [*config.label.reduced, *more, *identity.changes]
    return {"protocol": "reduced" if changes else "full", "changes": changes}


def now() -> str:
    """Return the time, UTC, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _external_errors_in_a_line(folder: RunFolder) -> Iterator[None]:
    """Report errors with an external cause, such as a full disk, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        raise UserError(
            f"{os.fsdecode(error.filename or folder.path)}: {error.strerror}: "
            f"{_REMEDIES[error.errno]} and start the same command again; it resumes from the last "
            "checkpoint"
        ) from error
