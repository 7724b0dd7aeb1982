"""Where a run lives, and whether it still has to be done."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import RecordError, read_any

# What says where, when and how loudly a run is done, but not what comes out of it.
_CIRCUMSTANCES = (
    "callbacks",
    "checkpoint_every_minutes",
    "checkpoint_every_n_epochs",
    "cluster",
    "compile",
    "dataset.fold",
    "dataset.root",
    "dataset.workers",
    "device",
    "label",
    "logger",
    "paths",
    "project",
    "reduced",
    "run",
    "seed",
    "sweep",
    "task.other_memories",
    "threads",
    "trainer.accelerator",
    "trainer.benchmark",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.enable_model_summary",
    "trainer.enable_progress_bar",
    "trainer.log_every_n_steps",
    "tune",
)
# Not hashed, as rows state them in words or by size, but no matter of indifference on the command
# line: more devices are a larger batch, another label or protocol is another row, and what looks
# on, or where a study is done, shows in its record.
_TELLING = {
    *("callbacks.precision", "device", "label", "reduced", "sweep", "threads"),
    *("trainer.devices", "trainer.num_nodes"),
}
# Settings that came later than the first records, with the value that was in force before: where
# they have it, they are not hashed.
_LATER = {"nonfinite": "stop", "schedule.horizon": None, "task.schedule.horizon": None}
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_FREE_OVERRIDES = (
    *(key for key in _CIRCUMSTANCES if key not in _TELLING),
    "experiment",
    "hydra",
    "study",
    "suite",
    "table",
)


@dataclass(frozen=True)
class Identity:
    """Which run this is: its row, its instance, and by what it differs from the row's file.

    The row is the experiment (or study) file; where a table varies settings of one experiment, its
    ``sweep.row`` names the row by those settings, ``sweep.keys``, and they count as no change.
    The instance is ``seed<k>``, with ``-fold<i>`` where the data set has folds, and with
    ``-<hash>`` where overrides changed the experiment, so that no two experiments share a folder.
    """

    row: str
    instance: str
    changes: tuple[str, ...]
    config_hash: str

    @classmethod
    def of(cls, config: dict[str, Any], row: str | None, overrides: list[str]) -> Identity:
        """Name the run of a resolved configuration, from Hydra's choice and overrides.

        Raises:
            UserError: the seed is not one that every generator takes.
        """
        if type(config["seed"]) is not int or not 0 <= config["seed"] < 2**32:
            raise UserError(
                f"seed must be an integer from 0 to {2**32 - 1}, got {config['seed']!r}"
            )
        sweep = config.get("sweep") or {"row": None, "keys": []}
        row = sweep["row"] or row
        changes = tuple(o for o in overrides if not _is_free(o, sweep["keys"]))
        config_hash = _hash_with(hash_config(config), changes)
        parts = [f"seed{config['seed']}"]
        if "fold" in config.get("dataset", {}):
            parts.append(f"fold{config['dataset']['fold']}")
        if row is None or changes:
            parts.append(config_hash[:8])
        return cls(row or "custom", "-".join(parts), changes, config_hash)


def _hash_with(config_hash: str, changes: Sequence[str]) -> str:
    """Return another hash where overrides change what is not hashed, but no indifferent matter."""
    told = sorted(change for change in changes if _is_telling(change))
    return _digest([config_hash, *told]) if told else config_hash


def hash_config(config: dict[str, Any]) -> str:
    """Return the hash of what determines the result: all but seed, fold and circumstances."""
    return _digest(_without(config, ""))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without(node: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        key: _without(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in node.items()
        if f"{prefix}{key}" not in _CIRCUMSTANCES
        and (f"{prefix}{key}" not in _LATER or value != _LATER[f"{prefix}{key}"])
    }


def _is_free(override: str, named: Sequence[str]) -> bool:
    if _key(override) in named:
        return True
    return _names(override, _FREE_OVERRIDES) and not _is_telling(override)


def _is_telling(override: str) -> bool:
    return _key(override) == "callbacks" or _names(override, _TELLING)


def _names(override: str, keys: Iterable[str]) -> bool:
    """Return whether ``override`` is of one of ``keys``, or of something below it."""
    key = _key(override)
    return any(key == other or key.startswith((f"{other}.", f"{other}/")) for other in keys)


def _key(override: str) -> str:
    return override.lstrip("+~").split("=", 1)[0].split("@", 1)[0]


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its checkpoints, its logs and, when it is finished, its record."""

    path: Path

    @property
    def record(self) -> Path:
        """The record, present exactly when the run is finished."""
        return self.path / "record.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def nonfinite(self) -> Path:
        """The folder of the steps whose gradient was no number."""
        return self.path / "nonfinite"

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint that a restart goes on from, if it exists."""
        return self.checkpoints / "last.ckpt"

    def finished(self, identity: Identity) -> bool:
        """Return whether this very experiment has been run here.

        Raises:
            UserError: the record is unreadable, or of another experiment.
        """
        if not self.record.exists():
            return False
        try:
            record = read_any(self.record)
        except RecordError as error:
            raise UserError(str(error)) from error
        if record.config_hash != identity.config_hash:
            raise UserError(
                f"{self.path} holds a finished run of another configuration "
                f"(the experiment was changed since): move it away, or choose another paths.runs"
            )
        return True

    def claim(self, identity: Identity) -> None:
        """Note whose checkpoints these are.

        Raises:
            UserError: there is a checkpoint of another experiment.
        """
        note = self.path / "config_hash"
        if any(self.checkpoints.glob("*.ckpt")):
            if note.exists() and note.read_text() != identity.config_hash:
                raise UserError(
                    f"{self.last_checkpoint} is of another configuration (the experiment was "
                    "changed since): move it away, or choose another paths.runs"
                )
        else:
            note.write_text(identity.config_hash)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the folder for this process; yields ``False`` if another process holds it.

        The lock goes with the process, however it ends. So the same command may be started several
        times: each takes the runs that no other is at.

        Raises:
            UserError: the folder cannot be written, or cannot be locked.
        """
        with self._lock_file() as file:
            yield self._take(file)

    def _take(self, file: TextIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise UserError(
                f"{self.path} is on a file system that has no locks ({error.strerror}): choose "
                "another paths.runs"
            ) from error
        return True

    def _lock_file(self) -> TextIO:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return (self.path / ".lock").open("w")
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            raise UserError(
                f"{self.path} cannot be written ({error.strerror}): choose another paths.runs"
            ) from error
