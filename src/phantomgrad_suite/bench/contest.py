"""A case of the benchmark: contenders that are measured in turns."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from phantomgrad_suite.studies.meters import Clock, frozen_heap, peak_bytes, spread

OURS, IMPLICIT, PEER = "ours", "our implicit", "torchdeq"
_LEAST_ROUNDS = 3


class Run(NamedTuple):
    """Seconds by quantity, the same for all contenders, and evaluations of ``f``."""

    seconds: dict[str, float]
    evaluations: int


Contender = Callable[[], Run]


@dataclass(frozen=True)
class Case:
    """What contenders, :data:`OURS` first, can do."""

    name: str
    contenders: Mapping[str, Callable[[Clock], Contender]]


def measure(case: Case, clock: Clock, rounds: int, seconds: float) -> dict[str, Any]:
    """Return memory and all times of a case: a warm-up, then rounds in which each runs once.

    After ``seconds`` no further round starts, but three rounds are made at least.
    """
    contenders = {name: build(clock) for name, build in case.contenders.items()}
    order, peaks = list(contenders), {}
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    with frozen_heap():
        for name in order:
            gc.collect()
            peaks[name] = peak_bytes(contenders[name], clock.device)
        started = time.perf_counter()
        for done in range(rounds):
            if done >= _LEAST_ROUNDS and time.perf_counter() - started > seconds:
                break
            for name in order:
                clock.settle()
                runs[name].append(contenders[name]())
            order.append(order.pop(0))  # another one goes first in the next round
    found = {
        name: {
            "evaluations": done[0].evaluations,
            "peak_bytes": peaks[name],
            "seconds": {q: spread([run.seconds[q] for run in done]) for q in done[0].seconds},
        }
        for name, done in runs.items()
    }
    return {"case": case.name, "contenders": found}
