"""The state of a run, read from its folder: no lock is taken and no checkpoint is loaded."""

from __future__ import annotations

import csv
import math
import os
import pickletools
import platform
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.attempts import FILE, read_attempt
from phantomgrad_suite.runs.formats import duration

STATES = ("done", "running", "failed", "stopped", "missing")
_SILENT_MINUTES = 60


@dataclass(frozen=True)
class Run:
    """A run and its state: ``failed`` by an error, ``stopped`` if it was killed or interrupted.

    ``host`` is the machine (and cluster job) of the last attempt, ``epoch`` the last one reached
    (from 1), ``updated`` the time of the last sign of life (seconds since 1970), and ``log`` the
    metrics by epoch of a run that is not finished.
    """

    row: str
    instance: str
    state: str
    error: str = ""
    host: str = ""
    epoch: int | None = None
    epochs: int | None = None
    updated: float = 0.0
    log: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    @property
    def progress(self) -> str:
        """The epoch reached and the age of the last sign of life."""
        of = f" of {self.epochs}" if self.epochs else ""
        epoch = f"epoch {self.epoch}{of}" if self.epoch else "no epoch yet"
        return f"{epoch}, last update {age(self.updated)}"


def examine(row: str, instance: str, runs: Path, records: Path) -> Run:
    """Return a run with its state; a run that is only among the published records is done."""
    folder = runs / row / instance
    if (folder / "record.json").exists():
        return Run(row, instance, "done", updated=_modified(folder / "record.json"))
    note, locked = read_attempt(folder), _is_locked(folder / ".lock")
    if not (note or locked or (folder / "config_hash").exists()):
        published = (records / row / f"{instance}.json").exists()
        return Run(row, instance, "done" if published else "missing")

    job, epochs = note.get("job"), note.get("epochs")
    signs = [folder / FILE, folder / "config_hash", folder / "log.txt"]
    signs += [*folder.glob("csv/*/metrics.csv"), *folder.glob("checkpoints/*")]
    signs += (runs / ".cluster").glob(f"{job}_*_log.out")
    updated, log = max(map(_modified, signs)), read_log(folder)
    last = _epoch_of_checkpoint(folder / "checkpoints/last.ckpt")
    state = "running" if locked or _runs_elsewhere(note, updated) else "stopped"
    return Run(
        row,
        instance,
        state="failed" if "failed" in note else state,
        error=str(note.get("failed", "")),
        host=(f"job {job} on " if job else "") + str(note.get("host", "this machine")),
        epoch=max((e + 1 for e in (*log, last) if e is not None), default=None),
        epochs=epochs if isinstance(epochs, int) else None,
        updated=updated,
        log=log,
    )


def read_log(folder: Path) -> dict[int, dict[str, float]]:
    """Return the finite metrics of each epoch, from 0; of several attempts the last one counts.

    Incomplete lines and unreadable files are skipped.
    """
    epochs: dict[int, dict[str, float]] = defaultdict(dict)
    paths = folder.glob("csv/version_*/metrics.csv")
    for path in sorted(paths, key=lambda path: (len(path.parent.name), path.parent.name)):
        with suppress(OSError, ValueError, csv.Error), path.open(encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if None in line or None in line.values() or not line.get("epoch", "").isdigit():
                    continue
                metrics = epochs[int(line.pop("epoch"))]
                for name, text in line.items():
                    with suppress(ValueError):
                        if name != "step" and math.isfinite(float(text)):
                            metrics[name] = float(text)
    return dict(sorted(epochs.items()))


def run_folders(runs: Path) -> Iterator[tuple[str, str]]:
    """Yield row and instance of every run folder below ``runs``."""
    for path, folders, files in os.walk(runs):
        if not {FILE, "config_hash", "record.json"}.isdisjoint(files):
            folders.clear()
            row, _, instance = Path(path).relative_to(runs).as_posix().rpartition("/")
            yield row, instance


def age(moment: float) -> str:
    """Return how long ago a moment was (in seconds since 1970), for example ``3.5 min ago``."""
    return f"{duration(max(time.time() - moment, 0))} ago"


def _is_locked(path: Path) -> bool:
    """Return whether a process of this machine holds the lock (Linux), without touching it."""
    with suppress(OSError):
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text().splitlines()
        return any("FLOCK" in line and f":{inode} " in line for line in locks)
    return False


def _runs_elsewhere(note: Mapping[str, Any], updated: float) -> bool:
    """Return whether another machine, whose locks cannot be seen, executes a run.

    It does unless it noted its end, or wrote nothing for longer than three checkpoints take.
    """
    if not note or note.get("host") == platform.node() or "stopped" in note:
        return False
    every = note.get("checkpoint_every_minutes")
    minutes = every if isinstance(every, int | float) else 0
    return time.time() - updated <= 60 * max(3 * minutes, _SILENT_MINUTES)


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _epoch_of_checkpoint(path: Path) -> int | None:
    """Return the first integer after the key ``epoch`` of a checkpoint; nothing is unpickled."""
    with suppress(OSError, ValueError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        codes = pickletools.genops(archive.read(name))
        if any(argument == "epoch" for _, argument, _ in codes):
            return next(int(str(value)) for code, value, _ in codes if "INT" in code.name)
    return None
