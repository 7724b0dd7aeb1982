"""How far the tables are: what of their runs is done, running, failed, stopped or missing.

Read from files alone, in a moment: the table files say which runs there are to be, the run folders
what has become of them. Nothing of the package is imported, as that would bring torch along;
``scripts/status.py`` runs this file.
"""

from __future__ import annotations

import itertools
import json
import os
import pickletools
import platform
import re
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

USAGE = """usage: python scripts/status.py [--table NAME] [--failed] [runs=DIR] [records=DIR]

Of every table: how many runs are done, running, failed (an error ended them), stopped (killed, or
broken off: the same command resumes them) and missing; then what is running, and where it stands.
--table NAME   this table only, row by row
--failed       the failed runs, and what each has failed by"""

STATES = ("done", "running", "failed", "stopped", "missing")
BESIDE = "(no table)"
_CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@dataclass(frozen=True)
class Run:
    """A run, and what has become of it."""

    row: str
    instance: str
    state: str
    detail: str = ""


# Which runs there are to be -----------------------------------------------------------------------


@cache
def _load(path: Path) -> dict[str, Any]:
    with path.open() as file:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.load(file, loader) or {}


def tables(configs: Path) -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in (configs / "table").glob("*.yaml"))


def expected(configs: Path, table: str) -> list[tuple[str, str]]:
    """Return row and instance of every run of a table, as ``runs.Identity`` would name them."""
    params, named = _sweep(configs, table)
    found = []
    for values in itertools.product(*(_values(value) for value in params.values())):
        run = _Settings(configs, dict(zip(params, values, strict=True)))
        row = run.filled(named) if named else run.settings["experiment"]
        found.append((row, run.instance()))
    return list(dict.fromkeys(found))


def _sweep(configs: Path, table: str) -> tuple[dict[str, Any], str | None]:
    """Return what a table varies, and how it names its rows; a base table comes first."""
    content = _load(configs / "table" / f"{table}.yaml")
    params: dict[str, Any] = {}
    named = None
    for base in content.get("defaults", []):
        if base != "_self_":
            params, named = _sweep(configs, base)
    more = content.get("hydra", {}).get("sweeper", {}).get("params", {})
    return {**params, **more}, content.get("sweep", {}).get("row", named)


def _values(value: Any) -> list[str]:
    """Return the values of a sweep: a list, or a range."""
    text = str(value).strip()
    if found := re.fullmatch(r"range\(([\d, ]+)\)", text):
        return [str(i) for i in range(*(int(n) for n in found[1].split(",")))]
    return [item.strip() for item in text.split(",")]


@dataclass(frozen=True)
class _Settings:
    """What a run is composed with, as far as its name goes."""

    configs: Path
    settings: Mapping[str, str]

    def instance(self) -> str:
        fold = self.setting("dataset.fold")
        return f"seed{self.setting('seed')}" + ("" if fold is None else f"-fold{fold}")

    def filled(self, text: str) -> str:
        """Return ``text`` with its interpolations replaced."""
        return re.sub(r"\$\{([^{}]+)\}", lambda match: str(self._named(match[1])), text)

    def _named(self, name: str) -> Any:
        if name.startswith("hydra:runtime.choices."):
            return self.choice(name.rpartition(".")[2])
        return self.choice("gradient") if name == "run.gradient" else self.setting(name)

    def choice(self, group: str) -> str:
        """Return the file of a group: a table's, else the row's, else the default one."""
        if group in self.settings:
            return self.settings[group]
        chosen = {}
        for content in (_load(self.configs / "train.yaml"), self._row()):
            for entry in content.get("defaults", []):
                if isinstance(entry, dict):
                    ((key, value),) = entry.items()
                    chosen[key.removeprefix("override ").lstrip("/")] = value
        return str(chosen[group])

    def setting(self, key: str) -> Any:
        """Return a value: of the table, else the row, else the file of its group, else the root."""
        if key in self.settings:
            return self.settings[key]
        group, _, rest = key.rpartition(".")
        own = _select(self._row(), key)
        if own is not None:
            return own
        file = f"{group}/{self.choice(group)}.yaml" if group else "train.yaml"
        return _select(_load(self.configs / file), rest)

    def _row(self) -> dict[str, Any]:
        return _load(self.configs / "experiment" / f"{self.settings['experiment']}.yaml")


def _select(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content


# What has become of them --------------------------------------------------------------------------


def examine(row: str, instance: str, runs: Path, records: Path) -> Run:
    """Return the state of a run, read from its folder and from the results."""
    folder = runs / row / instance
    note = _note(folder / "attempt.json")
    if (folder / "record.json").exists():
        return Run(row, instance, "done")
    if "failed" in note and not _is_locked(folder):
        return Run(row, instance, "failed", f"{note['failed']} ({_where(note)})")
    if _is_running(folder, note):
        return Run(row, instance, "running", f"{_progress(folder, note)} ({_where(note)})")
    if note or (folder / "config_hash").exists():
        return Run(row, instance, "stopped", _progress(folder, note))
    published = (records / row / f"{instance}.json").exists()
    return Run(row, instance, "done" if published else "missing")


def _note(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        note = json.loads(path.read_text())
        return note if isinstance(note, dict) else {}
    return {}


def _is_running(folder: Path, note: Mapping[str, Any]) -> bool:
    """Return whether a process has its hand on the run; that of another machine is believed."""
    elsewhere = bool(note) and note.get("host") != platform.node()
    return elsewhere or _is_locked(folder)


def _is_locked(folder: Path) -> bool:
    """Return whether a process of this machine holds the lock, without ever taking it."""
    with suppress(OSError):
        return (folder / ".lock").stat().st_ino in _locked_files()
    return False


@cache
def _locked_files() -> frozenset[int]:
    """Return the inodes of all files that are locked as run folders are."""
    with suppress(OSError):
        lines = Path("/proc/locks").read_text().splitlines()
        return frozenset(int(line.split()[-3].rsplit(":", 1)[1]) for line in lines if "FLOCK" in line)
    return frozenset()


def _where(note: Mapping[str, Any]) -> str:
    job = f"job {note['job']} on " if note.get("job") else ""
    return f"{job}{note.get('host', 'this machine')}"


def _progress(folder: Path, note: Mapping[str, Any]) -> str:
    """Return the epoch that a run is in, and how long ago it has last been heard of."""
    epochs = [_epoch_of_metrics(p) for p in folder.glob("csv/*/metrics.csv")]
    epochs.append(_epoch_of_checkpoint(folder / "checkpoints" / "last.ckpt"))
    of = f" of {note['epochs']}" if note.get("epochs") else ""
    epoch = max((e + 1 for e in epochs if e is not None), default=None)
    stands = "no epoch yet" if epoch is None else f"epoch {epoch}{of}"
    return f"{stands}, heard of {_ago(folder, note)} ago"


def _ago(folder: Path, note: Mapping[str, Any]) -> str:
    files = [folder / name for name in ("attempt.json", "config_hash", "log.txt")]
    files += [*folder.glob("csv/*/metrics.csv"), *folder.glob("checkpoints/*")]
    if note.get("job"):
        runs = folder.parents[len(Path(note.get("row", "")).parts)]
        files += runs.glob(f".cluster/{note['job']}_*_log.out")
    times = [0.0]
    for file in files:
        with suppress(OSError):
            times.append(file.stat().st_mtime)
    return _span(max(time.time() - max(times), 0))


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
    """Return what a checkpoint says of its epoch, without loading the rest."""
    with suppress(OSError, zipfile.BadZipFile, ValueError, StopIteration):
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            return _number_after("epoch", archive.read(name))
    return None


def _number_after(key: str, pickled: bytes) -> int | None:
    """Return the number that follows a key in a pickle, without running it."""
    found = False
    for _, argument, _ in pickletools.genops(pickled):
        if found and type(argument) is int and not _is_memo(_.name if hasattr(_, "name") else ""):
            return argument
        found = found or argument == key
    return None


def _is_memo(name: str) -> bool:
    return name in ("BINPUT", "LONG_BINPUT", "MEMOIZE")
