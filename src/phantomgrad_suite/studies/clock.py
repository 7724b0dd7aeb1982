"""Time on a device, and the time spent in a map."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phantomgrad.solvers import Map

Mark = float | torch.cuda.Event


class Clock:
    """Reads the time of a device.

    On CUDA these are events in the current stream: marks wait for nothing, only reading them out
    synchronises. On the CPU it is the processor time of this thread where torch uses one thread,
    so that other processes on the machine do not count, and the wall clock otherwise.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        alone = torch.get_num_threads() == 1
        self._read = time.thread_time if alone else time.perf_counter
        self.name = "CPU time" if alone else "wall clock"
        if device.type == "cuda":
            self.name = "CUDA events"

    def mark(self) -> Mark:
        """Return this moment."""
        if self.device.type != "cuda":
            return self._read()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def seconds(self, start: Mark, end: Mark) -> float:
        """Return the time between two marks, once the later one has been reached."""
        if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
            end.synchronize()
            return float(start.elapsed_time(end)) / 1000
        assert isinstance(start, float)
        assert isinstance(end, float)
        return end - start

    def settle(self) -> None:
        """Wait until the device has nothing left to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class TimedMap:
    """A map that remembers when it was at work.

    Attributes:
        spans: from when to when, call by call.
    """

    def __init__(self, f: Map, clock: Clock) -> None:
        self._f = f
        self._clock = clock
        self.spans: list[tuple[Mark, Mark]] = []

    def __call__(self, z: Tensor) -> Tensor:
        """Return ``f(z)``."""
        start = self._clock.mark()
        fz = self._f(z)
        self.spans.append((start, self._clock.mark()))
        return fz

    @property
    def evaluations(self) -> int:
        """How often it was called."""
        return len(self.spans)

    def seconds(self) -> float:
        """Return the time spent in ``f``."""
        return sum(self._clock.seconds(*span) for span in self.spans)


class Solves(NamedTuple):
    """What solves took.

    Attributes:
        seconds: in all.
        outside: the seconds outside of their maps.
    """

    seconds: float
    outside: float


class Watch:
    """Remembers how long solvers took, and how long they were outside of their maps."""

    def __init__(self) -> None:
        self.clock: Clock | None = None
        # Not the maps themselves: they would keep alive what they close over.
        self._solves: list[tuple[Mark, Mark, list[tuple[Mark, Mark]]]] = []

    def over(self, solver: Any) -> Any:
        """Return a solver that does what ``solver`` does, under watch."""
        return _Watched(solver, self)

    def note(self, solve: Callable[[Map, Tensor], Any], f: Map, z0: Tensor) -> Any:
        """Solve, and remember when."""
        assert self.clock is not None
        timed = TimedMap(f, self.clock)
        start = self.clock.mark()
        solution = solve(timed, z0)
        self._solves.append((start, self.clock.mark(), timed.spans))
        return solution

    def take(self) -> Solves:
        """Return what the solves since the last call took."""
        assert self.clock is not None
        seconds = self.clock.seconds
        total = sum(seconds(start, end) for start, end, _ in self._solves)
        inside = sum(seconds(*span) for _, _, spans in self._solves for span in spans)
        self._solves.clear()
        return Solves(total, total - inside)


class _Watched:
    def __init__(self, solver: Any, watch: Watch) -> None:
        self._solver, self._watch = solver, watch

    def solve(self, f: Map, z0: Tensor) -> Any:
        return self._watch.note(self._solver.solve, f, z0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._solver, name)


def time_outside(
    solve: Callable[[Map], object], f: Map, clock: Clock
) -> tuple[dict[str, float], int]:
    """Run ``solve(f)``; return its seconds, in all and outside ``f``, and its evaluations."""
    timed = TimedMap(f, clock)
    start = clock.mark()
    solve(timed)
    total = clock.seconds(start, clock.mark())
    return {"outside f": total - timed.seconds(), "total": total}, timed.evaluations
