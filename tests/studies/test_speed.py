"""The benchmark counts what it says: time, memory and evaluations. Nothing here is timed."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from phantomgrad import Anderson, Broyden, FixedPoint, Solver
from phantomgrad.errors import UserError
from phantomgrad.studies.speed import Options, peer, run
from phantomgrad.studies.speed.clock import Clock, Watch, time_outside
from phantomgrad.studies.speed.contest import (
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
from phantomgrad.studies.speed.epochs import as_epoch_table, epoch_costs
from phantomgrad.studies.speed.graphs import graph_cases
from phantomgrad.studies.speed.images import image_cases
from phantomgrad.studies.speed.maps import elementwise_map
from phantomgrad.studies.speed.memory import peak_bytes
from phantomgrad.studies.speed.plain import plain_broyden
from phantomgrad.studies.speed.report import as_data, as_gradient_table, as_table
from phantomgrad.studies.speed.solvers import solver_cases
from phantomgrad.studies.speed.steps import StepCase, convolution_cases

CPU = torch.device("cpu")
needs_peer = pytest.mark.skipif(
    peer.version() is None, reason="torchdeq is not installed: pip install 'phantomgrad[bench]'"
)
pytestmark = pytest.mark.filterwarnings("ignore:.*Profiler.*")
MIB = 2**20


@pytest.fixture(autouse=True)
def _float32() -> None:
    torch.set_default_dtype(torch.float32)  # as the benchmark runs; conftest restores it


# Memory -------------------------------------------------------------------------------------


def test_peak_is_the_highest_point_and_not_the_sum() -> None:
    """Two megabytes at once, a third after the first two are gone: the peak is two."""

    def allocate() -> None:
        first, second = torch.empty(MIB // 4), torch.empty(MIB // 4)
        del first, second
        torch.empty(MIB // 4)

    assert peak_bytes(allocate, CPU) == 2 * MIB


def test_peak_counts_from_what_is_in_use_before() -> None:
    """Memory held by the caller is no one's doing; memory still held at the end is."""
    held, kept = torch.empty(MIB), []
    assert MIB <= peak_bytes(lambda: kept.append(held[: MIB // 4] + 1), CPU) < MIB + 100
    assert peak_bytes(lambda: held.add_(1), CPU) < 100


def test_peak_includes_temporaries_inside_an_operation() -> None:
    """The softmax of a transposed matrix copies it first: the copy is memory like any other."""
    x = torch.empty(512, 512).t()
    assert peak_bytes(lambda: torch.softmax(x, dim=1), CPU) >= 2 * x.nbytes


# Time ---------------------------------------------------------------------------------------


class ManualClock(Clock):
    """A clock that moves only when told to."""

    now = 0.0

    def mark(self) -> float:
        return self.now


def test_time_outside_f_is_the_total_without_f() -> None:
    """Three calls of one second each in a solve that takes another five."""
    clock = ManualClock(CPU)

    def f(z: Tensor) -> Tensor:
        clock.now += 1
        return z

    def solve(f: Callable[[Tensor], Tensor]) -> None:
        for _ in range(3):
            f(torch.zeros(1))
        clock.now += 5

    seconds, evaluations = time_outside(solve, f, clock)
    assert seconds == {"outside f": 5.0, "total": 8.0}
    assert evaluations == 3


def test_a_watched_solver_does_the_same_and_tells_what_it_took() -> None:
    """Each evaluation is a second, and two seconds pass between the two solves: not counted."""
    clock, watch = ManualClock(CPU), Watch()
    watch.clock = clock

    class Slow(FixedPoint):
        def size(self, x: Tensor) -> Tensor:
            clock.now += 0.25
            return super().size(x)

    def f(z: Tensor) -> Tensor:
        clock.now += 1
        return z / 2

    plain = Slow(max_evaluations=4, tol=0, stop="absolute")
    watched, z0 = watch.over(plain), torch.ones(2, 3)
    first = watched.solve(f, z0)
    clock.now += 2
    second = watched.solve(f, z0)
    assert torch.equal(first.z, plain.solve(f, z0).z)
    assert torch.equal(first.z, second.z)
    assert watched.tol == 0
    assert watch.take() == 2 * 4 * 0.25
    assert watch.take() == 0


def test_a_watch_keeps_nothing_alive() -> None:
    """What a map closes over is gone with it, as it is without a watch."""
    watch = Watch()
    watch.clock = Clock(CPU)
    x = torch.ones(1, 2)
    alive = weakref.ref(x)
    watch.over(FixedPoint(max_evaluations=2)).solve(lambda z, x=x: x, torch.zeros(1, 2))
    del x
    assert alive() is None
    assert watch.take() > 0


def test_time_outside_f_is_never_negative() -> None:
    """With the real clock, on every solver and contender."""
    for case in solver_cases(((4, 8),), evaluations=6):
        for contender in case.contenders(CPU, with_peer=peer.version() is not None).values():
            seconds = contender(Clock(CPU)).seconds
            assert 0 <= seconds["outside f"] <= seconds["total"]


# Both sides do the same ---------------------------------------------------------------------


@needs_peer
@pytest.mark.parametrize("case", solver_cases(((4, 3, 5),), evaluations=9), ids=lambda c: c.name)
def test_both_sides_spend_the_same_evaluations(case: Case) -> None:
    """All of the budget: the tolerance is out of reach."""
    contenders = case.contenders(CPU, with_peer=True)
    assert {name: run(Clock(CPU)).evaluations for name, run in contenders.items()} == (
        dict.fromkeys(contenders, 9)
    )


@needs_peer
@pytest.mark.parametrize("solver", [FixedPoint(), Anderson(), Broyden()], ids=repr)
def test_both_sides_find_the_same_equilibrium(solver: Solver) -> None:
    """So the peer is called with the map, the start and the budget that are meant."""
    f, z0 = elementwise_map((4, 3, 5), CPU), torch.zeros(4, 3, 5)
    solver = replace(solver, max_evaluations=80, tol=0)
    theirs = peer.solve(solver, f, z0)
    torch.testing.assert_close(theirs, solver.solve(f, z0).z, rtol=0, atol=1e-5)


def test_plain_broyden_takes_the_steps_of_ours() -> None:
    """It is the same method, written as in textbooks."""
    torch.set_default_dtype(torch.float64)
    a, x = torch.randn(3, 6, 6) / 6, torch.randn(3, 6)
    points: dict[str, list[Tensor]] = {OURS: [], PLAIN: []}

    def recorded(name: str) -> Callable[[Tensor], Tensor]:
        def f(z: Tensor) -> Tensor:
            points[name].append(z.clone())
            return torch.tanh((a @ z.unsqueeze(2)).squeeze(2) + x)

        return f

    Broyden(max_evaluations=8, tol=0).solve(recorded(OURS), torch.zeros(3, 6))
    plain_broyden(recorded(PLAIN), torch.zeros(3, 6), evaluations=8)
    assert len(points[PLAIN]) == 8
    torch.testing.assert_close(torch.stack(points[PLAIN]), torch.stack(points[OURS]))


@needs_peer
@pytest.mark.parametrize(
    "case", [*convolution_cases(batch=2, side=6), *graph_cases(graphs=4)], ids=lambda c: c.name
)
def test_both_sides_compute_the_same_gradients(case: StepCase) -> None:
    """A training step of the peer does the work of ours."""
    gradients = []
    for layer in (case._our_layer, case._peer_layer):
        model, _, loss = case.step(CPU, layer)
        loss().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    ours, theirs = gradients
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(theirs[name], gradient, rtol=0, atol=0.02 * scale)


@needs_peer
def test_a_step_counts_the_evaluations_of_its_cell() -> None:
    """The peer's implicit gradient evaluates f once more, in its backward pass."""
    implicit, phantom = convolution_cases(batch=2, side=4)
    calls = {
        name: contender(Clock(CPU)).evaluations
        for name, contender in implicit.contenders(CPU, with_peer=True).items()
    }
    assert calls == {OURS: 19 + 1, PEER: 19 + 2}
    for contender in phantom.contenders(CPU, with_peer=True).values():
        assert contender(Clock(CPU)).evaluations == 19 + 5


@needs_peer
def test_a_step_of_mdeq_spends_the_same_budget_on_both_sides() -> None:
    """With several states, which the peer gets packed as ours are."""
    implicit, phantom = (replace(case, side=8) for case in image_cases((("tiny", 1),)))
    for case, ours, theirs in ((implicit, 23 + 1, 23 + 2), (phantom, 23 + 5, 23 + 5)):
        runs = {n: run(Clock(CPU)) for n, run in case.contenders(CPU, with_peer=True).items()}
        assert {n: run.evaluations for n, run in runs.items()} == {OURS: ours, PEER: theirs}


# Verdicts -----------------------------------------------------------------------------------


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
    """Steps of so many seconds, and those outside f."""
    seconds = [{"step": s, "forward": s / 4, "backward": 3 * s / 4} for s, _ in runs]
    outside = [o for _, o in runs]
    return Outcome(1, [Run(s, evaluations, o) for s, o in zip(seconds, outside, strict=True)])


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
    assert run.outside is not None
    assert 0 < run.outside < run.seconds["step"]
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


# The whole run ------------------------------------------------------------------------------


@pytest.fixture
def _threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@needs_peer
@pytest.mark.usefixtures("_threads")
def test_a_quick_run_writes_data_and_table(tmp_path: Path) -> None:
    """Of one case; whatever is no full run does not overwrite one."""
    run(Options(device="cpu", quick=True, only="fixed point", output=str(tmp_path)))
    assert {p.name for p in tmp_path.iterdir()} == {
        "cpu-quick-fixed-point.json",
        "cpu-quick-fixed-point.md",
    }
    data = json.loads((tmp_path / "cpu-quick-fixed-point.json").read_text())
    assert data["device"] == "cpu"
    assert data["torchdeq"] == peer.version()
    assert data["environment"]["threads"] == 1
    (case,) = data["cases"]
    assert case["contenders"][OURS]["evaluations"] == case["contenders"][PEER]["evaluations"]
    assert len(case["contenders"][OURS]["seconds"]["total"]["samples"]) == 2
    assert case["times_less"][PEER][MEMORY]["ratio_of_medians"] > 0
    assert [aim["quantity"] for aim in case["aims"]] == ["outside f", "total"]
    assert "| fixed point (512, 128)" in (tmp_path / "cpu-quick-fixed-point.md").read_text()


@pytest.mark.usefixtures("_threads")
def test_a_run_without_the_peer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It measures ours alone, under a name of its own."""
    monkeypatch.setattr(peer, "version", lambda: None)
    run(Options(device="cpu", quick=True, only="fixed point", output=str(tmp_path)))
    assert "pip install 'phantomgrad[bench]'" in caplog.text
    assert (tmp_path / "cpu-quick-fixed-point-alone.json").exists()


@pytest.mark.usefixtures("_threads")
def test_several_threads_have_files_of_their_own(tmp_path: Path) -> None:
    """And cases are found whatever their capitals."""
    run(Options(device="cpu", quick=True, only="FIXED", threads=2, output=str(tmp_path)))
    names = sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".json")
    alone = "" if peer.version() else "-alone"
    assert names == [f"cpu-2threads-quick-fixed{alone}.json"]
    assert json.loads((tmp_path / names[0]).read_text())["clock"] == "wall clock"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be auto, cpu or cuda, got 'tpu'"),
        ({"device": "cpu", "only": "Newton"}, "no case has 'Newton' in its name; there are"),
    ],
)
def test_what_is_not_there_is_named(options: dict[str, str], message: str, tmp_path: Path) -> None:
    """In one line, before anything is measured."""
    with pytest.raises(UserError, match=message):
        run(Options(output=str(tmp_path), **options))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"seconds": -1.0}, "seconds must not be negative, got -1.0"),
    ],
)
def test_a_refused_option_is_named(options: dict[str, float], message: str) -> None:
    """By the constructor, as everywhere."""
    with pytest.raises(ValueError, match=message):
        Options(**options)


def test_the_cells_of_a_step_are_those_that_are_trained() -> None:
    """Each contender has a model of its own, with the same weights."""
    (case, _) = graph_cases(graphs=2)
    first, _, _ = case.step(CPU, case._our_layer)
    second, cell, _ = case.step(CPU, case._our_layer)
    assert isinstance(cell, nn.Module)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(a, b) and a is not b for a, b in pairs)


# Epochs -------------------------------------------------------------------------------------


def test_an_epoch_is_the_sum_of_its_phases(small_tu: Path) -> None:
    """Every gradient is trained; phases add up; implicit alone has an adjoint solve."""
    costs = epoch_costs(small_tu, epochs=1, device=CPU)
    assert len(costs) == 3
    for cost in costs:
        phases = {k: v for k, v in cost.seconds.items() if k != "epoch"}
        assert set(phases) == {"forward", "backward", "update", "test"}
        assert cost.seconds["epoch"] == pytest.approx(sum(phases.values()))
        assert cost.evaluations["forward"] >= 2
        assert ("adjoint" in cost.evaluations) == (cost.gradient == "implicit")
    assert as_epoch_table(costs).count("\n") == 4
