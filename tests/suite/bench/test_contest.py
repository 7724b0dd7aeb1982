"""How contenders are measured and compared. Nothing is timed here."""

from typing import Any

import pytest
import torch

from phantomgrad_suite.bench.contest import OURS, PEER, Case, Run, case_table, measure
from phantomgrad_suite.studies.meters import Clock

CLOCK = Clock(torch.device("cpu"))
pytestmark = pytest.mark.filterwarnings("ignore:.*Profiler.*")


def test_the_ratio_is_that_of_medians() -> None:
    ours = {"peak_bytes": 2**20, "seconds": {"step": {"median": 1.0}}}
    theirs = {"peak_bytes": 2**21, "seconds": {"step": {"median": 4.0}}}
    table = case_table([{"case": "case", "contenders": {OURS: ours, PEER: theirs}}])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[2:] == [
        ["case", "step (ms)", PEER, "1000.00", "4000.00", "4.00"],
        ["case", "peak memory (MiB)", PEER, "1.00", "2.00", "2.00"],
    ]


def test_contenders_take_turns() -> None:
    """Each runs once untimed for its memory; then another one goes first in each round.

    Three rounds are made though the time is over.
    """
    made: list[str] = []

    def build(name: str) -> Any:
        return lambda clock: lambda: made.append(name) or Run({"total": 1.0}, 7)

    case = Case("case", {name: build(name) for name in (OURS, PEER)})
    found = measure(case, CLOCK, rounds=9, seconds=0)
    assert made == [OURS, PEER, OURS, PEER, PEER, OURS, OURS, PEER]
    assert found["contenders"][OURS]["evaluations"] == 7
    assert found["contenders"][OURS]["seconds"]["total"]["samples"] == [1.0] * 3
