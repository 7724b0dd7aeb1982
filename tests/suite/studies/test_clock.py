"""The benchmark's peak of memory and seconds outside f are what they say. Nothing is timed."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from bench.sides import CPU
from torch import Tensor

from phantomgrad import FixedPoint
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.solvers import solver_cases
from phantomgrad_suite.studies.clock import Clock, Solves, Watch, time_outside
from phantomgrad_suite.studies.memory import peak_bytes

pytestmark = [
    pytest.mark.usefixtures("float32"),  # as the benchmark runs
    pytest.mark.filterwarnings("ignore:.*Profiler.*"),
]
MIB = 2**20


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
    assert watch.take() == Solves(seconds=2 * 4 * 1.25, outside=2 * 4 * 0.25)
    assert watch.take() == Solves(0, 0)


def test_a_watch_keeps_nothing_alive() -> None:
    """What a map closes over is gone with it, as it is without a watch."""
    watch = Watch()
    watch.clock = Clock(CPU)
    x = torch.ones(1, 2)
    alive = weakref.ref(x)
    watch.over(FixedPoint(max_evaluations=2)).solve(lambda z, x=x: x, torch.zeros(1, 2))
    del x
    assert alive() is None
    assert watch.take().outside > 0


def test_time_outside_f_is_never_negative() -> None:
    """With the real clock, on every solver and contender."""
    for case in solver_cases(((4, 8),), evaluations=6):
        for contender in case.contenders(CPU, with_peer=peer.version() is not None).values():
            seconds = contender(Clock(CPU)).seconds
            assert 0 <= seconds["outside f"] <= seconds["total"]
