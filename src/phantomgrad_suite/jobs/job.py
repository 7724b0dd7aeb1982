"""One job, a training run or a study: skip it, leave it to another process, or do and record it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from phantomgrad_suite.jobs.environment import is_first_process
from phantomgrad_suite.jobs.overrides import identify
from phantomgrad_suite.runs.attempts import failure_noted, noted
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.folder import Identity, RunFolder
from phantomgrad_suite.runs.records import Record, StudyRecord, read_any, write_record

log = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no space, no quota, no more in one file

AnyRecord = Record | StudyRecord
Work = Callable[[DictConfig, Identity, RunFolder], tuple[AnyRecord, str]]
"""Does the job; returns its record and, in a line, what came out."""


def do(config: DictConfig, row: str | None, overrides: list[str], work: Work) -> AnyRecord | None:
    """Do the job that ``config`` describes, unless it is done, or being done elsewhere.

    Returns its record, ``None`` if it is being done elsewhere.

    Args:
        config: the composed configuration.
        row: the experiment or study file it was composed with, ``None`` without one.
        overrides: what was overridden on the command line.
        work: does it.

    Raises:
        UserError: something the user can put right; nothing has been overwritten.
    """
    identity = identify(as_dict(config), row, overrides)
    folder = RunFolder(Path(config.paths.runs) / identity.row / identity.instance)
    config.run.row, config.run.instance = identity.row, identity.instance
    config.run.folder = str(folder.path)
    title = f"{identity.row} {identity.instance}"
    if not is_first_process() and has_several_processes(config):  # the first one keeps the books
        return _follow(config, identity, folder, work)
    with _said_in_a_line(folder), folder.locked() as mine:
        if not mine:
            log.info("%s: another process is at it, left to it", title)
            return None
        if folder.finished(identity):
            log.info("%s: finished, skipped (%s)", title, folder.record)
            return read_any(folder.record)
        every = config.get("checkpoint_every_minutes")
        with noted(folder.path, epochs=_epochs(config), checkpoint_every_minutes=every):
            folder.claim(identity)
            record, outcome = work(config, identity, folder)
            _publish(record, folder, Path(config.paths.records))
        log.info("%s: %s", title, outcome)
        return record


def failure(error: UserError, config: DictConfig, row: str | None) -> str:
    """Return what a job has failed by; among several jobs, after the name of this one.

    Args:
        error: what was raised.
        config: the composed configuration, which :func:`do` has filled in.
        row: the experiment or study file it was composed with, ``None`` without one.
    """
    said, named = str(error), str(config.run.row or row or "custom")
    if HydraConfig.get().mode is not RunMode.MULTIRUN or said.startswith(named):
        return said
    return f"{' '.join(filter(None, (named, config.run.instance)))}: {said}"


def repeats(error: UserError, earlier: Iterable[str]) -> bool:
    """Return whether a job misses the data that another one of its table has missed.

    Args:
        error: what was raised.
        earlier: what :func:`failure` has made of the errors before.
    """
    return isinstance(error, MissingDataError) and any(s.endswith(str(error)) for s in earlier)


def _follow(
    config: DictConfig, identity: Identity, folder: RunFolder, work: Work
) -> AnyRecord | None:
    if not folder.finished(identity):
        with failure_noted(folder.path):
            work(config, identity, folder)
    return None


def _epochs(config: DictConfig) -> int | None:
    return (config.get("trainer") or {}).get("max_epochs")


def has_several_processes(config: DictConfig) -> bool:
    """Return whether a run is shared by several processes, one for each device of each node."""
    trainer = config.get("trainer") or {}
    return bool(trainer.get("devices", 1) != 1 or trainer.get("num_nodes", 1) != 1)


def as_dict(config: DictConfig) -> dict[str, Any]:
    """Return the configuration with every interpolation resolved.

    Raises:
        UserError: one names what is not there, or a value is missing.
    """
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        key, reason = error.full_key, str(error).strip().splitlines()[0]
        raise UserError(
            f"{key} cannot be filled in ({reason}): set {key} to a value, or what it refers to"
        ) from error


def _publish(record: AnyRecord, folder: RunFolder, records: Path) -> None:
    """Write the record of an unchanged row among the results, and any into its run folder."""
    if not record.instance.endswith(record.config_hash[:8]):
        write_record(record, records / record.row / f"{record.instance}.json")
    write_record(record, folder.record)  # last: its presence says that all is done


@contextmanager
def _said_in_a_line(folder: RunFolder) -> Iterator[None]:
    """Turn what can go wrong outside our code into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise UserError(
            f"the disk is full ({error.filename or folder.path}, {error.strerror}): make room and "
            "start the same command again; it resumes from the last checkpoint"
        ) from error
