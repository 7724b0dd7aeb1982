"""How contenders are measured, compared and reported. Nothing is timed here."""

from typing import Any

import pytest
import torch

from phantomgrad_suite.bench.contest import MEMORY, OURS, PEER, Case, Run, compare, measure
from phantomgrad_suite.bench.report import case_table
from phantomgrad_suite.studies.meters import Clock

CLOCK = Clock(torch.device("cpu"))
pytestmark = pytest.mark.filterwarnings("ignore:.*Profiler.*")


def compared(peaks: dict[str, int], **seconds: list[float]) -> Any:
    """The comparison of contenders that took so many seconds in each round."""
    names = {"ours": OURS, "peer": PEER}
    runs = {names[k]: [Run({"step": s}, 3) for s in times] for k, times in seconds.items()}
    peaks = dict.fromkeys(runs, 1) | peaks
    return compare(Case(name="case", contenders={}), peaks, runs)


def rows(case: Any) -> list[list[str]]:
    """The cells of the table of a case, without head and rule."""
    lines = case_table([case]).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_ratios_of_medians_and_within_rounds() -> None:
    case = compared({PEER: 2}, ours=[1, 1, 4], peer=[2, 4, 8])
    assert case["times_less"][PEER] == {
        "step": {"ratio_of_medians": 4, "median_of_paired_ratios": 2},
        MEMORY: {"ratio_of_medians": 2, "median_of_paired_ratios": 2},
    }
    assert rows(case) == [
        ["case", "step", "1000.00 ms", PEER, "4000.00 ms", "4.00", "2.00"],
        ["", MEMORY, "0.0 MiB", PEER, "0.0 MiB", "2.00", ""],
    ]


def test_without_the_peer_ours_is_shown_alone() -> None:
    case = compared({OURS: 7}, ours=[1, 2, 9])
    assert case["contenders"][OURS] == {
        "evaluations": 3,
        "rounds": 3,
        "peak_bytes": 7,
        "seconds": {"step": {"median": 2, "quartiles": [1.5, 2, 5.5], "samples": [1, 2, 9]}},
    }
    assert rows(case)[0] == ["case", "step", "2000.00 ms", *[""] * 4]


def test_quantities_of_ours_alone_have_rows_of_their_own() -> None:
    """The time outside f is printed with its share of the solves."""
    runs = {
        OURS: [Run({"step": 4.0, "solves": 2.0, "outside f": 0.3}, 1)],
        PEER: [Run({"step": 8.0}, 1)],
    }
    case = compare(Case(name="case", contenders={}), {OURS: 1, PEER: 1}, runs)
    assert [row[1:4] for row in rows(case)] == [
        ["step", "4000.00 ms", PEER],
        [MEMORY, "0.0 MiB", PEER],
        ["solves", "2000.00 ms", ""],
        ["outside f", "300.00 ms, 15.0%", ""],
    ]


def test_contenders_take_turns() -> None:
    """Each runs once untimed for its memory; then another one goes first in each round."""
    made: list[str] = []

    def build(name: str) -> Any:
        return lambda clock: lambda: made.append(name) or Run({"total": 1.0})  # type: ignore[func-returns-value]

    case = Case(name="case", contenders={name: build(name) for name in (OURS, PEER)})
    measure(case, CLOCK, with_peer=True, rounds=3, seconds=0)
    assert made == [OURS, PEER, OURS, PEER, PEER, OURS, OURS, PEER]


@pytest.mark.parametrize(("own", "options", "made"), [(None, 9, 3), (5, 1, 5)])
def test_rounds_end_with_the_time_but_not_before_three(
    own: int | None, options: int, made: int
) -> None:
    """A case that has a number of its own makes that many, however long they take."""
    case = Case(
        name="case", contenders={OURS: lambda clock: lambda: Run({"total": 1.0})}, rounds=own
    )
    found = measure(case, CLOCK, with_peer=False, rounds=options, seconds=0)
    assert found["contenders"][OURS]["rounds"] == made
