"""What has become of a run, read from its folder."""

from __future__ import annotations

import os
import pickletools
import platform
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.attempts import FILE, read_attempt

_SILENT_MINUTES = 60
STATES = ("done", "running", "failed", "stopped", "missing")


@dataclass(frozen=True)
class Run:
    """A run, and what has become of it.

    Args:
        row: its row.
        instance: its seed and fold.
        state: one of ``STATES``. What failed was ended by an error, what stopped was killed or
            broken off: the same command resumes it.
        detail: where it stands, or what it has failed by.
    """

    row: str
    instance: str
    state: str
    detail: str = ""


def examine(row: str, instance: str, runs: Path, records: Path) -> Run:
    """Return a run as its folder shows it; one that is published only is done, too.

    Args:
        row: its row.
        instance: its seed and fold.
        runs: the folder of all runs.
        records: the folder of all records.
    """
    folder = runs / row / instance
    if (folder / "record.json").exists():
        return Run(row, instance, "done")
    note, locked = read_attempt(folder), _is_locked(folder)
    elsewhere = bool(note) and note.get("host") != platform.node()
    if "failed" in note:
        return Run(row, instance, "failed", f"{note['failed']} ({_where(note)})")
    if locked or elsewhere:  # the word of another machine is taken for it, for a while
        goes_on = locked or not _has_ended(note, standing(folder, runs).heard)
        said = f"{_progress(folder, runs)} ({_where(note)})"
        return Run(row, instance, "running" if goes_on else "stopped", said)
    if note or (folder / "config_hash").exists():
        return Run(row, instance, "stopped", _progress(folder, runs))
    published = (records / row / f"{instance}.json").exists()
    return Run(row, instance, "done" if published else "missing")


@dataclass(frozen=True)
class Standing:
    """Where a run stands that goes on, or went on until it stopped.

    Args:
        epoch: the one that it is known to have reached, from 1; ``None`` before any.
        epochs: how many there are to be, where its note says so.
        heard: when it was last heard of, in seconds since 1970.
        where: the machine it is on, and its job there.
    """

    epoch: int | None
    epochs: int | None
    heard: float
    where: str


def standing(folder: Path, runs: Path) -> Standing:
    """Return where the run of a folder stands, from its logs and checkpoints.

    Args:
        folder: of the run.
        runs: the folder of all runs, where jobs of a cluster have their logs.
    """
    note = read_attempt(folder)
    metrics, checkpoints = list(folder.glob("csv/*/metrics.csv")), folder / "checkpoints"
    known = [_epoch_of_checkpoint(checkpoints / "last.ckpt"), *map(_epoch_of_metrics, metrics)]
    epoch = max((e + 1 for e in known if e is not None), default=None)
    logs = list((runs / ".cluster").glob(f"{note['job']}_*_log.out")) if note.get("job") else []
    signs = [folder / FILE, folder / "config_hash", folder / "log.txt"]
    heard = max(map(_time, [*signs, *metrics, *checkpoints.glob("*"), *logs]))
    return Standing(epoch, note.get("epochs"), heard, _where(note))


def look_again() -> None:
    """Forget which folders are locked: it is looked up once, which is enough for a command."""
    _locked_files.cache_clear()


def run_folders(runs: Path) -> Iterator[tuple[str, str]]:
    """Return row and instance of every run folder there is."""
    for path, folders, files in os.walk(runs):
        if ".lock" in files:
            folders.clear()
            row, _, instance = Path(path).relative_to(runs).as_posix().rpartition("/")
            yield row, instance


def _is_locked(folder: Path) -> bool:
    """Return whether a process of this machine holds the lock, without ever taking it."""
    with suppress(OSError):
        return (folder / ".lock").stat().st_ino in _locked_files()
    return False


@cache
def _locked_files() -> frozenset[int]:
    """Return the inodes of all files that are locked as run folders are (Linux)."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(int(line.split()[-3].rsplit(":", 1)[1]) for line in lines if "FLOCK" in line)


def _has_ended(note: Mapping[str, Any], heard: float) -> bool:
    """Return whether a run of another machine has stopped: so it said, or it should have spoken."""
    every = note.get("checkpoint_every_minutes")
    minutes = every if isinstance(every, int | float) else 0
    return "stopped" in note or time.time() - heard > 60 * max(3 * minutes, _SILENT_MINUTES)


def _where(note: Mapping[str, Any]) -> str:
    job = f"job {note['job']} on " if note.get("job") else ""
    return f"{job}{note.get('host', 'this machine')}"


def _progress(folder: Path, runs: Path) -> str:
    """Return the epoch that a run is in, and how long ago it was last heard of."""
    found = standing(folder, runs)
    of = f" of {found.epochs}" if found.epochs else ""
    stands = "no epoch yet" if found.epoch is None else f"epoch {found.epoch}{of}"
    return f"{stands}, heard of {_span(max(time.time() - found.heard, 0))} ago"


def _time(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _span(seconds: float) -> str:
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _epoch_of_metrics(path: Path) -> int | None:
    """Return the epoch of the last whole line."""
    with suppress(OSError, ValueError, IndexError), path.open("rb") as file:
        column = file.readline().decode().rstrip().split(",").index("epoch")
        file.seek(max(file.tell(), path.stat().st_size - 4096))
        return int(file.read().decode().rsplit("\n", 2)[-2].split(",")[column])
    return None


def _epoch_of_checkpoint(path: Path) -> int | None:
    """Return what a checkpoint says of its epoch, without loading it."""
    with suppress(OSError, zipfile.BadZipFile, ValueError), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith("/data.pkl"):
                return _number_after("epoch", archive.read(name))
    return None


def _number_after(key: str, pickled: bytes) -> int | None:
    """Return the first number behind a key of a pickled dictionary; nothing of it is run."""
    found = False
    for code, argument, _ in pickletools.genops(pickled):
        if found and "INT" in code.name:
            return int(argument)  # type: ignore[arg-type]
        found = found or argument == key
    return None
