"""Disturb runs at random moments until they are done; each must equal the undisturbed one.

python benchmarks/soak.py 100             at least 100 kills, and other disturbances
python benchmarks/soak.py 100 --seed 7    the same moments, as far as clocks allow

Every attempt is the same command in a process forked from one that has imported everything. Curves,
result, weights, optimizer and schedule must agree bit for bit.
"""

import argparse
import gc
import itertools
import os
import random
import resource
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "suite"))

from interruptions import assert_same_run
from training import ON_CPU, SCRIPT, SMALL_MDEQ

import phantomgrad_suite.train  # noqa: F401  # so that the forked processes need not import it

ALWAYS = (ON_CPU, "runtime.checkpoint.every_minutes=0", "runtime.checkpoint.every_n_epochs=1")
ROWS: dict[str, tuple[str, ...]] = {
    "chains": ("experiment=chains/npg_k5_d0.5", "trainer.max_epochs=15"),
    "digits": ("experiment=digits/upg_k5_d0.5", "trainer.max_epochs=3"),
    "mdeq": (  # dropout, unrolled pretraining, a learning rate by step
        *("experiment=digits/implicit", "model=mdeq_tiny", "trainer.max_epochs=2"),
        *SMALL_MDEQ,
        *("solver.max_evaluations=3", "adjoint.max_evaluations=3", "model.dropout=0.2"),
        *("++gradient.on_failure=ignore", "task.pretraining_steps=6"),
        "task.pretraining_layers=2",
        *("schedule=cosine_by_step", "task.schedule_by=step", "dataset.batch_size=150"),
    ),
    "two processes": (  # of one run, as under torchrun
        *("experiment=digits/upg_k5_d0.5", "trainer=ddp", "trainer.devices=2"),
        *("trainer.max_epochs=2", "dataset.batch_size=16"),
    ),
    "language": (  # memory of the streams, jitter, a penalty in a share of the steps
        *("experiment=table3/wikitext103_preln_jr_upg_14", "scale=cpu"),
        *("dataset.segments_per_epoch=15", "trainer.max_epochs=2", "+trainer.limit_val_batches=4"),
    ),
}
FAILURE, STOPPED, KILLED = 1, 128 + signal.SIGTERM, -signal.SIGKILL
KINDS = ("kill", "kill", "term", "truncate", "flip", "litter", "full")


def attempt(row: str, folder: Path, limit: int | None = None) -> list[int]:
    """Start the script in a new process, or in two; return their numbers.

    Their files may not be longer than ``limit`` bytes, as on a full disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.txt").write_text("")
    ranks: list[dict[str, str]] = [{}]
    if row == "two processes":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        ranks = [{**address, "GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": rank} for rank in "01"]
    return [os.fork() or _run(row, folder, limit, environment) for environment in ranks]


def _run(row: str, folder: Path, limit: int | None, environment: dict[str, str]) -> NoReturn:
    code: object = FAILURE
    try:
        os.environ.update(environment)
        os.chdir(folder)
        out = os.open("log.txt", os.O_WRONLY | os.O_APPEND)
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


def status_of(processes: list[int]) -> int:
    """Wait for the processes of an attempt; soon after one has failed, kill the other."""
    statuses: dict[int, int] = {}
    while len(statuses) < len(processes):
        process, status = os.wait()
        statuses[process] = os.waitstatus_to_exitcode(status)
        others = set(processes) - set(statuses)
        if statuses[process] and others:
            time.sleep(1)  # it may be saving, or about to say why
            for other in others:
                os.kill(other, signal.SIGKILL)
    return statuses[processes[0]]


def undisturbed(row: str, folder: Path) -> Path:
    """Finish a row, or the rest of it, in one attempt; return its folder."""
    status = status_of(attempt(row, folder))
    assert status == 0, (folder / "log.txt").read_text()
    (record,) = folder.glob("runs/**/record.json")
    return record.parent


def disturb(row: str, folder: Path, seconds: float, chance: random.Random) -> tuple[str, int]:
    """Disturb an attempt within its expected duration; return how, and its exit status."""
    kind = chance.choice(KINDS)
    sizes = [p.stat().st_size for p in folder.glob("runs/**/last.ckpt")]
    size = sizes[0] if sizes and sizes[0] else 100_000
    limit = chance.randrange(size // 5, size) if kind == "full" else None
    processes = attempt(row, folder, limit)
    if kind != "full":
        time.sleep(chance.uniform(0, 0.7 * seconds))
        for process in processes:
            os.kill(process, signal.SIGTERM if kind == "term" else signal.SIGKILL)
    status, log = status_of(processes), (folder / "log.txt").read_text()
    # A run that has finished returns 0; before training, SIGTERM ends the process at once.
    assert status in (0, FAILURE, STOPPED, KILLED, -signal.SIGTERM), (kind, status, log)
    expected = "the disk is full" if kind == "full" else "another process of this run was lost"
    assert status != FAILURE or expected in log, (kind, log)
    if status != 0:  # otherwise the run is finished, and its last checkpoint is compared
        damage(kind, folder, chance)
    return kind, status


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


def soak(kills: int, seed: int, rows: list[str], root: Path) -> Counter[tuple[str, int]]:
    """Disturb the rows in turn until there were ``kills``; count the disturbances."""
    gc.collect()
    gc.freeze()  # a run would search what is imported for garbage
    counts: Counter[tuple[str, int]] = Counter()
    wholes: dict[str, tuple[Path, float]] = {}
    chance, folder = random.Random(seed), root / "disturbed"
    for row in itertools.cycle(rows):
        if row not in wholes:
            started = time.monotonic()
            wholes[row] = undisturbed(row, root / row), time.monotonic() - started
        whole, seconds = wholes[row]
        before = counts.total()
        while counts.total() < before + 25 and not list(folder.glob("runs/**/record.json")):
            counts[disturb(row, folder, seconds, chance)] += 1
            if killed(counts) >= kills:
                break
        ours = undisturbed(row, folder)  # skips a run that is finished
        assert_same_run(ours, whole)
        print(f"{row}: equal after {counts.total() - before} disturbances", flush=True)
        shutil.rmtree(folder)
        if killed(counts) >= kills:
            return counts
    raise AssertionError("there are no rows")


def killed(counts: Counter[tuple[str, int]]) -> int:
    """Return the number of disturbances that killed a run."""
    return sum(n for (_, status), n in counts.items() if status == KILLED)


def main() -> None:
    """Print how often the runs were disturbed, and in how many seconds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    asked = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts = soak(asked.kills, asked.seed, asked.rows, Path(folder))
    each = ", ".join(f"{kind} with exit status {s}: {n}" for (kind, s), n in sorted(counts.items()))
    print(
        f"{killed(counts)} kills in {counts.total()} disturbances ({each}) in "
        f"{time.monotonic() - started:.0f} s: every run equals the undisturbed one in every bit"
    )


if __name__ == "__main__":
    main()
