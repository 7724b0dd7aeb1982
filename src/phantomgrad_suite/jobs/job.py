"""One job, a training run or a study: skip it, leave it to another process, or execute it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from phantomgrad.checks import ShapeError
from phantomgrad_suite.jobs.compose import identity_of
from phantomgrad_suite.jobs.environment import is_first_process
from phantomgrad_suite.runs.attempts import log_attempt, log_failure
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import Record, StudyRecord, read_any, write_record

log = logging.getLogger(__name__)

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

AnyRecord = Record | StudyRecord
Work = Callable[[Identity, RunFolder], tuple[AnyRecord, str]]
"""Executes the job; returns its record and a line about the result."""


def run_job(config: DictConfig, work: Work) -> AnyRecord | None:
    """Execute the job that ``config`` describes, unless it is finished or executed elsewhere.

    Returns its record, ``None`` if another process executes it.

    Args:
        config: the composed configuration; ``runtime.run`` is filled in.
        work: executes it.

    Raises:
        UserError: something the user can put right; nothing has been overwritten.
    """
    identity = identity_of(config)
    folder = RunFolder(Path(config.runtime.paths.runs) / identity.row / identity.instance)
    run = config.runtime.run
    run.row, run.instance, run.folder = identity.row, identity.instance, str(folder.path)
    title = f"{identity.row} {identity.instance}"
    if not is_first_process() and has_several_processes(config):
        _follow(identity, folder, work)
        return None
    with _external_errors_in_a_line(folder), folder.locked() as acquired:
        if not acquired:
            log.info("%s: another process executes it, skipped", title)
            return None
        if folder.finished(identity):
            log.info("%s: finished, skipped (%s)", title, folder.record)
            return read_any(folder.record)
        epochs = (config.get("trainer") or {}).get("max_epochs")
        with log_attempt(folder.path, epochs=epochs):
            folder.claim(identity)
            record, outcome = work(identity, folder)
            _save(record, folder, Path(config.runtime.paths.records))
        log.info("%s: %s", title, outcome)
        return record


def describe_failure(error: UserError, config: DictConfig) -> str:
    """Return the message of ``error``, among several jobs after the name of this one."""
    message, run = str(error), config.runtime.run
    row = str(run.row or config.label.get("row") or "custom")
    if HydraConfig.get().mode is not RunMode.MULTIRUN or message.startswith(row):
        return message
    return f"{' '.join(filter(None, (row, run.instance)))}: {message}"


def is_repeated(error: UserError, failures: Iterable[str]) -> bool:
    """Return whether another job of the table has already failed for the same missing data."""
    return isinstance(error, MissingDataError) and any(f.endswith(str(error)) for f in failures)


def has_several_processes(config: DictConfig) -> bool:
    """Return whether a run has several processes, one for each device of each node."""
    trainer = config.get("trainer") or {}
    return bool(trainer.get("devices", 1) != 1 or trainer.get("num_nodes", 1) != 1)


def _follow(identity: Identity, folder: RunFolder, work: Work) -> None:
    """Take part in a run whose folder the first process has locked."""
    if not folder.finished(identity):
        with log_failure(folder.path):
            work(identity, folder)


def _save(record: AnyRecord, folder: RunFolder, records: Path) -> None:
    """Write the record to the run folder and, of an unchanged row, to the results."""
    if not record.instance.endswith(record.config_hash[:8]):
        write_record(record, records / record.row / f"{record.instance}.json")
    write_record(record, folder.record)  # last: it marks the run as finished


@contextmanager
def _external_errors_in_a_line(folder: RunFolder) -> Iterator[None]:
    """Turn errors that are not the program's own into messages: misfitting data, a full disk."""
    try:
        yield
    except ShapeError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise UserError(
            f"the disk is full ({error.filename or folder.path}, {error.strerror}): make room and "
            "start the same command again; it resumes from the last checkpoint"
        ) from error
