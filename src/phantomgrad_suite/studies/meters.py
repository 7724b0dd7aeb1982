"""Time and peak memory of calls on a device, and statistics of repeated measurements."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from phantomgrad_suite.studies.base import progress

Mark = float | torch.cuda.Event


class Clock:
    """Reads the time of a device: on CUDA by events, which only :meth:`seconds` waits for.

    On the CPU a mark is the CPU time of this thread where torch uses a single thread (so that
    other processes do not count), and the wall clock otherwise.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        single = torch.get_num_threads() == 1
        self._read = time.thread_time if single else time.perf_counter
        on_cpu = "CPU time" if single else "wall clock"
        self.name = "CUDA events" if device.type == "cuda" else on_cpu

    def mark(self) -> Mark:
        if self.device.type != "cuda":
            return self._read()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def seconds(self, start: Any, end: Any) -> float:
        if isinstance(end, torch.cuda.Event):
            end.synchronize()
            return float(start.elapsed_time(end)) / 1000
        return float(end - start)

    def time(self, call: Callable[[], object]) -> float:
        start = self.mark()
        call()
        return self.seconds(start, self.mark())

    def take_turns(
        self, calls: Sequence[Callable[[], object]], repeats: int
    ) -> list[tuple[float, ...]]:
        """Return the seconds of each of ``calls``, timed one after the other in each repeat."""
        with frozen_heap():
            rounds = [[self._settled(call) for call in calls] for _ in progress(range(repeats))]
        return list(zip(*rounds, strict=True))

    def _settled(self, call: Callable[[], object]) -> float:
        self.settle()
        return self.time(call)

    def settle(self) -> None:
        """Collect garbage, and wait until the device is idle."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the garbage collector from searching the objects that exist already."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Return by how many bytes ``run`` raises the memory in use at its highest point.

    On CUDA the allocator counts. On the CPU torch's profiler lists every allocation and release,
    temporaries inside an operation included. (The resident set would include freed pages.)
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    recorded: Any = profiler.profiler
    events = sorted(recorded.kineto_results.events(), key=lambda event: event.start_ns())
    changes: list[int] = [
        event.nbytes()
        for event in events
        if event.name() == "[memory]" and event.device_type().name == "CPU"
    ]
    return max(accumulate(changes, initial=0))


def spread(samples: Sequence[float]) -> dict[str, Any]:
    """Return median, quartiles and ``samples``."""
    middle, several = statistics.median(samples), len(samples) > 1
    quartiles = statistics.quantiles(samples, n=4, method="inclusive") if several else [middle] * 3
    return {"median": middle, "quartiles": quartiles, "samples": list(samples)}


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the median over the rounds of ``a / b`` within a round."""
    return statistics.median(x / y if y else float("inf") for x, y in zip(a, b, strict=True))
