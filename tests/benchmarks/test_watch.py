"""The watch of the benchmarks takes the time of solves. Nothing is timed here."""

import weakref

import torch

from against_torchdeq.watch import Solves, Watch
from phantomgrad import FixedPoint
from phantomgrad_suite.studies.meters import Clock

CPU = torch.device("cpu")


class ManualClock(Clock):
    """A clock that moves only when told to."""

    now = 0.0

    def mark(self):
        return self.now


def test_a_watched_solver_does_the_same_and_its_time_is_taken():
    """Each evaluation takes a second; the two seconds between the solves are not counted."""
    clock = ManualClock(CPU)
    watch = Watch(clock)

    class Slow(FixedPoint):
        def size(self, x):
            clock.now += 0.25
            return super().size(x)

    def f(z):
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
    assert watch.take() == Solves(seconds=2 * 4 * 1.25, outside=2 * 4 * 0.25, evaluations=8)
    assert watch.take() == Solves(0, 0, 0)


def test_a_watch_keeps_no_tensor_alive():
    watch = Watch(Clock(CPU))
    x = torch.ones(1, 2)
    alive = weakref.ref(x)
    watch.over(FixedPoint(max_evaluations=2)).solve(lambda z, x=x: x, torch.zeros(1, 2))
    del x
    assert alive() is None
    assert watch.take().outside > 0
