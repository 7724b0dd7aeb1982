"""A case of the benchmark: contenders that are measured in turns, and their comparison."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from phantomgrad_suite.studies.meters import Clock, frozen_heap, paired_ratio, peak_bytes, spread

OURS, IMPLICIT, PEER = "ours", "our implicit", "torchdeq"
MEMORY = "peak memory"
_LEAST_ROUNDS = 3


class Run(NamedTuple):
    """Seconds by quantity, of which ours may have more than others, and evaluations of ``f``."""

    seconds: dict[str, float]
    evaluations: int = 0


Contender = Callable[[], Run]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What contenders, :data:`OURS` first, can do; ``rounds`` overrules the options of the run."""

    name: str
    contenders: Mapping[str, Callable[[Clock], Contender]]
    rounds: int | None = None


def measure(
    case: Case, clock: Clock, with_peer: bool, rounds: int, seconds: float
) -> dict[str, Any]:
    """Return the comparison of a case: memory, as a warm-up, then rounds in which each runs once.

    After ``seconds`` no further round starts, but three rounds are made at least.
    """
    contenders = {
        name: build(clock)
        for name, build in case.contenders.items()
        if with_peer or not name.startswith(PEER)
    }
    order, peaks = list(contenders), {}
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    with frozen_heap():
        for name in order:
            gc.collect()
            peaks[name] = peak_bytes(contenders[name], clock.device)
        started = time.perf_counter()
        for done in range(case.rounds or rounds):
            late = time.perf_counter() - started > seconds
            if late and done >= _LEAST_ROUNDS and case.rounds is None:
                break
            for name in order:
                clock.settle()
                runs[name].append(contenders[name]())
            order.append(order.pop(0))  # another one goes first in the next round
    return compare(case, peaks, runs)


def compare(case: Case, peaks: Mapping[str, int], runs: Mapping[str, list[Run]]) -> dict[str, Any]:
    """Return all samples as plain data, and the ratios of the other contenders to ours."""
    seconds = {
        name: {q: [run.seconds[q] for run in done] for q in done[0].seconds}
        for name, done in runs.items()
    }
    ratios = {
        name: {
            **{q: _ratios(seconds[name][q], seconds[OURS][q]) for q in seconds[name]},
            MEMORY: _ratios([peaks[name]], [peaks[OURS]]),
        }
        for name in runs
        if name != OURS
    }
    return {
        "case": case.name,
        "contenders": {
            name: {
                "evaluations": done[0].evaluations,
                "rounds": len(done),
                "peak_bytes": peaks[name],
                "seconds": {q: spread(samples) for q, samples in seconds[name].items()},
            }
            for name, done in runs.items()
        },
        "times_less": ratios,
    }


def _ratios(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    return {
        "ratio_of_medians": paired_ratio([statistics.median(theirs)], [statistics.median(ours)]),
        "median_of_paired_ratios": paired_ratio(theirs, ours),
    }
