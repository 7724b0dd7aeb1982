"""Disturb runs at random moments until they are done; each must equal the undisturbed one.

python tests/suite/checkpoint/soak.py 100             at least 100 kills, and other disturbances
python tests/suite/checkpoint/soak.py 100 --seed 7    the same moments, as far as clocks allow

Every attempt is the same command in a process forked from one that has imported everything. Curves,
result, weights, optimizer and schedule must agree bit for bit.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import resource
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interruptions import assert_same_run
from training import ON_CPU, SCRIPT

import phantomgrad_suite.train  # noqa: F401  # so that the forked processes need not import it
from phantomgrad_suite.runs.records import read_record

ALWAYS = (ON_CPU, "runtime.checkpoint.every_minutes=0", "runtime.checkpoint.every_n_epochs=1")
ROWS: dict[str, tuple[str, ...]] = {
    "chains": ("experiment=chains/npg_k5_d0.5", "trainer.max_epochs=30"),
    "digits": ("experiment=digits/upg_k5_d0.5", "trainer.max_epochs=3"),
    "mdeq": (  # dropout, unrolled pretraining, a learning rate by step
        *("experiment=digits/implicit", "model=mdeq_tiny", "trainer.max_epochs=2"),
        *("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8"),
        *("solver.max_evaluations=3", "adjoint.max_evaluations=3", "++model.dropout=0.2"),
        *("++gradient.on_failure=ignore", "+task.pretraining_steps=6"),
        "+task.pretraining_layers=2",
        *("schedule=cosine_by_step", "+task.schedule_by=step"),
    ),
    "language": (  # memory of the streams, jitter, a penalty in a share of the steps
        *("experiment=lm/pydoc_preln_jr_upg_k5_d0.8", "trainer.max_epochs=1"),
    ),
}
FAILURE, STOPPED, KILLED = 1, 128 + signal.SIGTERM, -signal.SIGKILL
KINDS = ("kill", "kill", "term", "truncate", "flip", "litter", "full")


@dataclass
class Soak:
    """Disturbances, counted by kind."""

    folder: Path
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def kills(self) -> int:
        """How many processes were killed before they had ended."""
        return self.ends[str(KILLED)]

    def disturb(self, row: str, seconds: float, patience: int) -> Path:
        """Finish a row through at most ``patience`` disturbances; return its folder."""
        folder = self.folder / "disturbed"
        shutil.rmtree(folder, ignore_errors=True)
        for _ in range(patience):
            if records := list(folder.glob("runs/**/record.json")):
                return records[0].parent
            self._attempt(row, folder, seconds)
        return undisturbed(row, folder)

    def _attempt(self, row: str, folder: Path, seconds: float) -> None:
        kind = self.chance.choice(KINDS)
        checkpoints = [p for p in folder.glob("runs/**/last.ckpt") if p.stat().st_size]
        size = checkpoints[0].stat().st_size if checkpoints else 100_000
        limit = self.chance.randrange(size // 5, size) if kind == "full" else None
        process = fork(row, folder, limit)
        if kind != "full":
            time.sleep(self.chance.uniform(0, 0.7 * seconds))
            os.kill(process, signal.SIGTERM if kind == "term" else signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        # A run that has finished returns 0; before training, SIGTERM ends the process at once.
        assert status in (0, FAILURE, STOPPED, KILLED, -signal.SIGTERM), (kind, status, log(folder))
        assert status != FAILURE or kind == "full", (kind, log(folder))
        assert status != FAILURE or "the disk is full" in log(folder), log(folder)
        self.counts[kind] += 1
        self.ends[str(status)] += 1
        if status != 0:  # otherwise the run is finished, and its last checkpoint is compared
            damage(kind, folder, self.chance)


def damage(kind: str, folder: Path, chance: random.Random) -> None:
    """Damage the last checkpoint as a bad disk does."""
    for path in folder.glob("runs/**/last.ckpt"):
        content = bytearray(path.read_bytes())
        if kind == "truncate":
            path.write_bytes(content[: chance.randrange(len(content))])
        elif kind == "flip":
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            path.write_bytes(content)
        elif kind == "litter":
            path.with_name(".last.ckpt.part").write_bytes(content[: len(content) // 2])


def undisturbed(row: str, folder: Path) -> Path:
    """Finish a row, or the rest of it, in one attempt; return its folder."""
    status = os.waitstatus_to_exitcode(os.waitpid(fork(row, folder), 0)[1])
    assert status == 0, log(folder)
    (record,) = folder.glob("runs/**/record.json")
    return record.parent


def log(folder: Path) -> str:
    """Return the output of the last attempt."""
    return (folder / "log.txt").read_text()


def fork(row: str, folder: Path, limit: int | None = None) -> int:
    """Start the script in a new process; return its number.

    Args:
        row: of ``ROWS``.
        folder: where it works.
        limit: the longest file that it may write, in bytes, as on a full disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    process = os.fork()
    return process or _run(row, folder, limit)


def _run(row: str, folder: Path, limit: int | None) -> NoReturn:
    code: object = FAILURE
    try:
        os.chdir(folder)
        out = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error, not an end
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        sys.argv = [str(SCRIPT), *ROWS[row], *ALWAYS]
        runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else FAILURE)


def same(folder: Path, whole: Path) -> None:
    """Raise unless the two runs agree in every bit."""
    assert_same_run(folder, whole)
    ours, theirs = (read_record(path / "record.json") for path in (folder, whole))
    assert ours.result == theirs.result
    assert str(ours.curves) == str(theirs.curves)  # nan is nan


def soak(kills: int, seed: int, rows: list[str], folder: Path) -> Soak:
    """Disturb the rows in turn until there were ``kills``; print the outcome of each."""
    found = Soak(folder, random.Random(seed))
    wholes: dict[str, tuple[Path, float]] = {}
    for number in itertools.count():
        if found.kills >= kills:
            break
        row = rows[number % len(rows)]
        if row not in wholes:
            started = time.monotonic()
            wholes[row] = undisturbed(row, folder / row), time.monotonic() - started
        before = found.counts.total()
        same(found.disturb(row, wholes[row][1], 25), wholes[row][0])
        print(f"{row}: equal after {found.counts.total() - before} disturbances", flush=True)
    return found


def main() -> None:
    """Read the command line, and soak."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    asked = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(asked.kills, asked.seed, asked.rows, Path(folder))
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(found.counts.items()))
    ends = ", ".join(f"{end}: {n}" for end, n in sorted(found.ends.items()))
    print(
        f"{found.kills} kills in {found.counts.total()} disturbances ({kinds}; exit statuses "
        f"{ends}) in {time.monotonic() - started:.0f} s: "
        "every run equals the undisturbed one in every bit"
    )


if __name__ == "__main__":
    main()
