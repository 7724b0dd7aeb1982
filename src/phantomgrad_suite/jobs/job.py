"""One job, a training run or a study: skip it, leave it to another process, or execute it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from phantomgrad.checks import ShapeError
from phantomgrad_suite.jobs.compose import as_dict, identity_of
from phantomgrad_suite.jobs.environment import has_several_processes, is_first_process
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.folder import RunFolder, log_attempt
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import Record, StudyRecord, read_any, write_record

log = logging.getLogger(__name__)

AnyRecord = Record | StudyRecord


def run_job(
    config: DictConfig, work: Callable[[Identity, RunFolder], AnyRecord]
) -> AnyRecord | None:
    """Execute the job that ``config`` describes, unless it is finished or executed elsewhere.

    Fills in ``runtime.run``. Returns the record, ``None`` if another process executes the job. When
    it raises :class:`UserError`, nothing has been overwritten.
    """
    identity, runtime = identity_of(config), config.runtime
    folder = RunFolder(Path(runtime.paths.runs) / identity.row / identity.instance)
    runtime.run.update(row=identity.row, instance=identity.instance, folder=str(folder.path))
    if not is_first_process() and has_several_processes(config):
        if not folder.finished(identity.config_hash):
            work(identity, folder)  # the first process holds the lock, and writes the record
        return None
    with _external_errors_in_a_line(folder), folder.locked() as acquired:
        if not acquired:
            log.info("%s: another process executes it, skipped", identity)
            return None
        if folder.finished(identity.config_hash):
            log.info("%s: finished, skipped (%s)", identity, folder.record)
            return read_any(folder.record)
        epochs = (config.get("trainer") or {}).get("max_epochs")
        with log_attempt(folder.path, epochs=epochs):
            record = work(identity, folder)
            if not identity.is_changed:  # the row as its file has it
                published = Path(runtime.paths.records) / identity.row
                write_record(record, published / f"{identity.instance}.json")
            write_record(record, folder.record)  # last: it marks the run as finished
        return record


def origin(config: DictConfig, identity: Identity) -> dict[str, Any]:
    """Return what records and checkpoints state about their run."""
    return {
        "row": identity.row,
        "instance": identity.instance,
        "config": as_dict(config),
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
    """Turn errors that are not the program's own into messages: misfitting data, a full disk."""
    try:
        yield
    except ShapeError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise UserError(
            f"the disk is full ({error.filename or folder.path}, {error.strerror}): make room and "
            "start the same command again; it resumes from the last checkpoint"
        ) from error
