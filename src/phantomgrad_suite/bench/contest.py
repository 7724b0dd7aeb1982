"""A case of the benchmark: contenders that are measured in turns, and the table of all cases."""

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from phantomgrad_suite.report.markdown import grid
from phantomgrad_suite.report.table import Section
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


def case_table(cases: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with rows for each quantity and each other contender."""
    rows = []
    for case in cases:
        amounts = {name: _amounts(found) for name, found in case["contenders"].items()}
        ours = amounts.pop(OURS)
        rows += [
            {
                "Case": case["case"],
                "Quantity": quantity,
                "Against": rival,
                "Ours": f"{ours[quantity]:.2f}",
                "Theirs": f"{amount:.2f}",
                "Times less": f"{amount / ours[quantity]:.2f}" if ours[quantity] else "",
            }
            for rival, theirs in amounts.items()
            for quantity, amount in theirs.items()
        ]
    section = Section.of("", rows, words=3)
    return "\n\n".join(grid(section, block) for block in section.blocks)


def _amounts(contender: Mapping[str, Any]) -> dict[str, float]:
    times = {f"{q} (ms)": 1e3 * found["median"] for q, found in contender["seconds"].items()}
    return {**times, "peak memory (MiB)": contender["peak_bytes"] / 2**20}
