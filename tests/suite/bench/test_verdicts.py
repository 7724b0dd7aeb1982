"""Aims met or missed, limits kept or not, and how a comparison comes about."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from bench.sides import CPU

from phantomgrad_suite.bench import Options
from phantomgrad_suite.bench.contest import (
    EACH_TIME,
    HOISTED,
    IMPLICIT,
    MEMORY,
    OURS,
    PEER,
    PLAIN,
    Aim,
    Case,
    Comparison,
    Contender,
    Limit,
    Outcome,
    Run,
    measure,
    unmet,
)
from phantomgrad_suite.bench.images import image_cases
from phantomgrad_suite.bench.report import as_data, as_gradient_table, as_table
from phantomgrad_suite.bench.solvers import solver_cases
from phantomgrad_suite.bench.steps import convolution_cases
from phantomgrad_suite.studies.clock import Clock, Solves

pytestmark = [
    pytest.mark.usefixtures("float32"),  # as the benchmark runs
    pytest.mark.filterwarnings("ignore:.*Profiler.*"),
]


def outcome(*seconds: float, peak: int = 1) -> Outcome:
    return Outcome(peak, [Run({"outside f": s}, 3) for s in seconds])


def test_an_aim_is_met_by_both_ratios_or_not_at_all() -> None:
    """The ratio of the medians is 4, the median of the paired ratios 2."""
    comparison = Comparison(
        "case",
        (Aim("outside f", 2.0), Aim("outside f", 3.0), Aim(MEMORY, 2.0)),
        {OURS: outcome(1, 1, 4), PEER: outcome(2, 4, 8, peak=2)},
    )
    assert comparison.ratio("outside f") == 4
    assert comparison.paired_ratio("outside f") == 2
    assert [comparison.met(aim) for aim in comparison.aims] == [True, False, True]
    assert unmet([comparison]) == ["case: outside f 2.00 times less, the aim is 3"]


def stepping(*runs: tuple[float, float | None], evaluations: int = 1) -> Outcome:
    """Steps of so many seconds, half of them in solves, and those outside f."""
    seconds = [{"step": s, "forward": s / 4, "backward": 3 * s / 4} for s, _ in runs]
    solves = [None if outside is None else Solves(s / 2, outside) for s, outside in runs]
    return Outcome(1, [Run(s, evaluations, o) for s, o in zip(seconds, solves, strict=True)])


@pytest.mark.parametrize(("threads", "seconds", "kept"), [(2, 3.0, True), (2, 2.9, False)])
def test_a_limit_is_kept_or_not_by_the_median(threads: int, seconds: float, kept: bool) -> None:
    """On as many threads as it is meant for, and on no other hardware."""
    limit = Limit("step", seconds, threads)
    ours = {OURS: stepping((3, None), (9, None), (1, None))}
    comparison = Comparison("case", (), ours, (limit,), threads=threads)
    assert comparison.kept(limit) is kept
    assert unmet([comparison]) == ([] if kept else ["case: step takes 3.00 s, the limit is 2.9 s"])
    assert replace(comparison, threads=1).kept(limit) is None
    assert replace(comparison, device="cuda").kept(limit) is None
    verdict = "met" if kept else "NOT MET"
    assert f"| {seconds:g} s on 2 threads {verdict} |" in " ".join(as_table([comparison]).split())


def test_the_floor_is_the_ratio_without_what_is_outside_f() -> None:
    """Steps of 3 and 4 seconds, one outside f, against 6 and 6: three and two times less."""
    ours, theirs = stepping((3, 1), (4, 1)), stepping((6, None), (6, None))
    comparison = Comparison("case", (), {OURS: ours, PEER: theirs})
    assert comparison.in_f() == [2, 3]
    assert comparison.floor() == 2.5
    assert replace(comparison, outcomes={OURS: ours}).floor() is None
    assert Comparison("case", (), {OURS: theirs, PEER: theirs}).floor() is None
    assert "| step but outside f | 2500.00 ms |" in " ".join(as_table([comparison]).split())


def test_the_share_of_solves_outside_f_has_a_limit() -> None:
    """Solves of 1, 2 and 4 seconds, 0.1, 0.3 and 0.8 of them outside f: 15 % in the median."""
    ours = {OURS: stepping((2, 0.1), (4, 0.3), (8, 0.8))}
    comparison = Comparison("case", (), ours, most_outside=0.14)
    assert comparison.share_outside() == pytest.approx(0.15)
    assert comparison.little_outside() is False
    assert unmet([comparison]) == ["case: 15.0% of a solve pass outside f, the limit is 14%"]
    kept = replace(comparison, most_outside=0.16)
    assert kept.little_outside() is True
    assert unmet([kept]) == []
    assert replace(comparison, most_outside=None).little_outside() is None
    assert replace(comparison, outcomes={OURS: stepping((2, None))}).share_outside() is None
    table = " ".join(as_table([comparison]).split())
    assert "| outside f, of a solve | 15.0% | | | | | 14% NOT MET |" in table
    assert as_data(kept)["outside_f"] == {
        "share_of_solves": pytest.approx(0.15),
        "at_most": 0.16,
        "met": True,
    }


def test_a_ratio_counts_as_it_is_printed() -> None:
    """What the table shows as 1.00 meets an aim of 1."""
    aim = Aim(MEMORY, 1.0)
    outcomes = {OURS: outcome(1, peak=10_001), PEER: outcome(1, peak=10_000)}
    assert Comparison("case", (aim,), outcomes).met(aim) is True
    outcomes[OURS] = outcome(1, peak=10_100)
    assert Comparison("case", (aim,), outcomes).met(aim) is False


def test_what_the_phantom_gradient_saves_is_told_by_model_and_side() -> None:
    """Its step takes half the time on our side, a quarter on the peer's; 8 images a step."""
    implicit = {OURS: stepping((4, 0)), PEER: stepping((16, None))}
    phantom = {OURS: stepping((2, 0)), PEER: stepping((4, None))}
    pair = [
        Comparison(f"MDEQ, {name}", (), outcomes, samples=8)
        for name, outcomes in (("implicit", implicit), ("UPG", phantom))
    ]
    table = [line.split(" | ") for line in as_gradient_table(pair).splitlines()[2:]]
    cells = [[cell.strip("| ") for cell in line] for line in table]
    assert cells == [
        ["MDEQ, ours", "2.00", "2.00", "2.00", "2.0", "4.0"],
        ["MDEQ, torchdeq", "4.00", "4.00", "4.00", "0.5", "2.0"],
    ]
    assert as_gradient_table(pair[1:]) == ""


def test_an_aim_may_be_against_somebody_else() -> None:
    """Three times less than implicit differentiation, half as much as the peer needs."""
    aims = (Aim("step", 1.5), Aim("step", 2.5, against=IMPLICIT), Aim("step", 4, against=IMPLICIT))
    outcomes = {OURS: stepping((2, None)), PEER: stepping((4, None)), IMPLICIT: stepping((6, None))}
    comparison = Comparison("case", aims, outcomes)
    assert [comparison.met(aim) for aim in aims] == [True, True, False]
    assert unmet([comparison]) == ["case: step 3.00 times less than our implicit, the aim is 4"]
    table = " ".join(as_table([comparison]).split())
    assert "| case | step | 2000.00 ms | 4000.00 ms | 2.00 | 2.00 | | 1.5 met |" in table
    assert "| | step, against our implicit | 2000.00 ms | 6000.00 ms | 3.00 | 3.00 | |" in table
    assert "2.5 met; 4 NOT MET |" in table
    assert [aim["against"] for aim in as_data(comparison)["aims"]] == [PEER, IMPLICIT, IMPLICIT]


def test_a_case_without_the_peer_has_lines_for_its_rivals_alone() -> None:
    """Where the peer takes no part, no line is kept free for it; the plain form has a column."""
    ours, other = stepping((2, None)), stepping((3, None))
    assert Comparison("case", (), {OURS: ours, EACH_TIME: other}).rivals == [EACH_TIME]
    assert Comparison("case", (), {OURS: ours, PLAIN: other}).rivals == [PEER]
    assert Comparison("case", (), {OURS: ours, PEER: other, HOISTED: other}).rivals == [
        PEER,
        HOISTED,
    ]
    table = as_table([Comparison("case", (), {OURS: ours, EACH_TIME: other})])
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == ["case", "", "", ""]
    assert "against constants each time" in table.splitlines()[2]


def test_a_step_tells_what_is_outside_f() -> None:
    """Of ours alone, less than the whole step; the sizes of the paper have limits."""
    case = replace(convolution_cases(batch=2, side=4)[0], name="any")
    run = case.contenders(CPU, with_peer=False)[OURS](Clock(CPU))
    assert run.solves is not None
    assert 0 < run.solves.outside < run.solves.seconds < run.seconds["step"]
    assert [c.most_outside for c in image_cases()] == [0.15] * 4
    assert [c.limits != () for c in image_cases()] == [True, True, False, False]
    assert [c.samples for c in image_cases()] == [64, 64, 8, 8]


def test_without_the_peer_no_aim_is_met_or_missed() -> None:
    """Ours alone is measured all the same, and the table says so."""
    case = solver_cases(((2, 4),), evaluations=4)[2]
    comparison = measure(case, CPU, with_peer=False, options=Options(repeats=1, seconds=0))
    assert list(comparison.outcomes) == [OURS, PLAIN]
    assert {comparison.met(aim) for aim in comparison.aims} == {None}
    assert "not measured" in as_table([comparison])
    assert PEER not in as_data(comparison)["contenders"]


@dataclass
class Listening(Case):
    """Remembers who ran when."""

    turns: list[str]
    name: str = "listening"
    aims: tuple[Aim, ...] = ()

    def contenders(self, device: torch.device, with_peer: bool) -> dict[str, Contender]:
        def contender(name: str) -> Contender:
            def run(clock: Clock) -> Run:
                self.turns.append(name)
                return Run({"total": 1.0}, 1)

            return run

        return {name: contender(name) for name in (OURS, PEER)}


def test_contenders_take_turns() -> None:
    """One untimed run each for the memory, then rounds in which no one always goes first."""
    case = Listening([])
    comparison = measure(case, CPU, with_peer=True, options=Options(repeats=3, seconds=0))
    assert case.turns == [OURS, PEER, OURS, PEER, PEER, OURS, OURS, PEER]
    assert all(len(o.runs) == 3 for o in comparison.outcomes.values())
