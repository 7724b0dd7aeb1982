"""A short search on the chains, and the records of its runs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from omegaconf import DictConfig

import phantomgrad_suite.train
from phantomgrad_suite.runs.records import Record, read_record

ROW = "chains/upg_k5_d0.5"
SHORT = ("tune=lambda", f"experiment={ROW}", "trainer.max_epochs=2", "runtime.tune.startup=3")


def records(folder: Path) -> dict[str, list[Record]]:
    """The records of the runs below ``<folder>/runs/tune``, by row."""
    found: dict[str, list[Record]] = {}
    for path in sorted((folder / "runs" / "tune").rglob("record.json")):
        record = read_record(path)
        found.setdefault(record.row, []).append(record)
    return found


def trials(out: str) -> list[tuple[int, dict[str, str], str]]:
    """Number, settings and value of each finished trial, as printed."""
    lines = re.findall(r"^trial (\d+) of \d+, (.*): ([\d.e-]+); best", out, re.MULTILINE)
    return [
        (int(number), dict(part.split("=") for part in params.split(", ")), value)
        for number, params, value in lines
    ]


@contextmanager
def counted(fails: dict[int, BaseException] | None = None) -> Iterator[list[str]]:
    """Yield a list to which each run that begins adds λ and seed; the runs in ``fails`` raise."""
    begun: list[str] = []
    original = phantomgrad_suite.train.train

    def train(config: DictConfig) -> None:
        begun.append(f"{config.gradient.damping}-{config.seed}")
        if fails and len(begun) - 1 in fails:
            raise fails[len(begun) - 1]
        original(config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phantomgrad_suite.train.train", train)
        yield begun
