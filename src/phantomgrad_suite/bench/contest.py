"""Contenders measured in turn, and what is concluded from it."""

from __future__ import annotations

import gc
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from phantomgrad_suite.bench.options import Options
from phantomgrad_suite.studies.clock import Clock, Solves
from phantomgrad_suite.studies.memory import peak_bytes

OURS, PEER, PLAIN = "ours", "torchdeq", "plain"
HOISTED = "torchdeq on our f"
IMPLICIT = "our implicit"
EACH_TIME = "constants each time"
OF_PEER = (PEER, HOISTED)
"""The contenders that torchdeq drives."""
MEMORY = "peak memory"

_LEAST_ROUNDS = 3


class Run(NamedTuple):
    """One run of a contender.

    Attributes:
        seconds: by quantity.
        evaluations: of ``f``.
        solves: what solvers took of ``step``, where that was watched.
    """

    seconds: dict[str, float]
    evaluations: int
    solves: Solves | None = None


Contender = Callable[[Clock], Run]


class Aim(NamedTuple):
    """That ours needs ``factor`` times less of a quantity than another contender."""

    quantity: str
    factor: float
    against: str = PEER


class Limit(NamedTuple):
    """That ours takes ``seconds`` at most for a quantity, on a CPU with so many ``threads``."""

    quantity: str
    seconds: float
    threads: int


class Case(ABC):
    """Something that several contenders can do: built when its turn comes, then forgotten.

    Attributes:
        name: of the case.
        aims: what is expected against the peer, and against other contenders.
        limits: what is expected of ours alone.
        samples: how many images, graphs or words a step is made on, 0 where there is no step.
        most_outside: the share of a solve that may pass outside ``f``, where one is expected.
    """

    name: str
    aims: tuple[Aim, ...]
    limits: tuple[Limit, ...] = ()
    samples: int = 0
    most_outside: float | None = None

    @abstractmethod
    def contenders(self, device: torch.device, with_peer: bool) -> dict[str, Contender]:
        """Return what is to be run, by name, :data:`OURS` first."""


@dataclass
class Outcome:
    """What was measured of one contender.

    Attributes:
        runs: in the order of the rounds.
        peak_bytes: by how much its run raises the memory in use.
    """

    peak_bytes: int
    runs: list[Run] = field(default_factory=list)

    @property
    def evaluations(self) -> int:
        """Evaluations of ``f`` in each run."""
        return self.runs[0].evaluations

    def samples(self, quantity: str) -> list[float]:
        """Return the seconds of every round."""
        return [run.seconds[quantity] for run in self.runs]

    def median(self, quantity: str) -> float:
        """Return the median time in seconds, or the peak memory in bytes."""
        if quantity == MEMORY:
            return self.peak_bytes
        return statistics.median(self.samples(quantity))


@dataclass(frozen=True)
class Comparison:
    """The outcomes of one case by contender, and the verdict on its aims."""

    case: str
    aims: tuple[Aim, ...]
    outcomes: dict[str, Outcome]
    limits: tuple[Limit, ...] = ()
    samples: int = 0
    threads: int = 1
    device: str = "cpu"
    most_outside: float | None = None

    @property
    def quantities(self) -> list[str]:
        """What was measured of every contender."""
        return [*self.outcomes[OURS].runs[0].seconds, MEMORY]

    @property
    def rivals(self) -> list[str]:
        """Who ours is compared with line by line: the peer, where it can take part, and others."""
        others = [name for name in self.outcomes if name not in (OURS, PEER, PLAIN)]
        return [PEER, *others] if PEER in self.outcomes or not others else others

    def ratio(self, quantity: str, contender: str = PEER) -> float | None:
        """Return how many times less ours needs: the ratio of the medians."""
        if contender not in self.outcomes:
            return None
        return _divide(
            self.outcomes[contender].median(quantity), self.outcomes[OURS].median(quantity)
        )

    def paired_ratio(self, quantity: str, contender: str = PEER) -> float | None:
        """Return the median over the rounds of the ratio within a round."""
        if contender not in self.outcomes or quantity == MEMORY:
            return self.ratio(quantity, contender)
        pairs = zip(
            self.outcomes[contender].samples(quantity),
            self.outcomes[OURS].samples(quantity),
            strict=True,
        )
        return statistics.median(_divide(theirs, ours) for theirs, ours in pairs)

    def in_f(self) -> list[float] | None:
        """Return the seconds of ours in each step but for those outside ``f``."""
        runs = self.outcomes[OURS].runs
        watched = [run.seconds["step"] - run.solves.outside for run in runs if run.solves]
        return watched or None

    def share_outside(self) -> float | None:
        """Return which share of our solves passed outside ``f``: the median over the rounds."""
        watched = [run.solves for run in self.outcomes[OURS].runs if run.solves]
        shares = [_divide(solves.outside, solves.seconds) for solves in watched]
        return statistics.median(shares) if shares else None

    def little_outside(self) -> bool | None:
        """Return whether that share is as small as expected; ``None`` where none is."""
        share = self.share_outside()
        if self.most_outside is None or share is None:
            return None
        return share <= self.most_outside

    def floor(self) -> float | None:
        """Return the ratio of the steps if ours took no time outside ``f``: what can be won."""
        watched = self.in_f()
        if watched is None or PEER not in self.outcomes:
            return None
        theirs = self.outcomes[PEER].samples("step")
        return statistics.median(_divide(a, b) for a, b in zip(theirs, watched, strict=True))

    def kept(self, limit: Limit) -> bool | None:
        """Return whether ours keeps a limit; ``None`` on other hardware than it is meant for."""
        if self.device != "cpu" or self.threads != limit.threads:
            return None
        return self.outcomes[OURS].median(limit.quantity) <= limit.seconds

    def met(self, aim: Aim) -> bool | None:
        """Return whether an aim is met, by both ratios; ``None`` without the other contender.

        Ratios count as they are printed, to two decimals.
        """
        ratios = self.ratio(aim.quantity, aim.against), self.paired_ratio(aim.quantity, aim.against)
        known = [ratio for ratio in ratios if ratio is not None]
        return round(min(known), 2) >= aim.factor if known else None


def measure(case: Case, device: torch.device, with_peer: bool, options: Options) -> Comparison:
    """Measure a case: memory first, which is the warm-up as well, then time, turn by turn."""
    contenders, clock = case.contenders(device, with_peer), Clock(device)
    gc.collect()
    gc.freeze()  # what is there by now need not be searched for garbage before every run
    try:
        outcomes = {name: Outcome(_peak(run, clock)) for name, run in contenders.items()}
        _take_turns(contenders, clock, outcomes, options)
    finally:
        gc.unfreeze()
    return Comparison(
        *(case.name, case.aims, outcomes, case.limits, case.samples),
        threads=torch.get_num_threads(),
        device=device.type,
        most_outside=case.most_outside,
    )


def unmet(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a line for every aim that is not met, and every limit that is not kept."""
    late = [
        f"{c.case}: {limit.quantity} takes {c.outcomes[OURS].median(limit.quantity):.2f} s, "
        f"the limit is {limit.seconds:g} s"
        for c in comparisons
        for limit in c.limits
        if c.kept(limit) is False
    ]
    late += [
        f"{c.case}: {c.share_outside():.1%} of a solve pass outside f, "
        f"the limit is {c.most_outside:.0%}"
        for c in comparisons
        if c.little_outside() is False
    ]
    return late + [
        f"{c.case}: {aim.quantity} {c.paired_ratio(aim.quantity, aim.against):.2f} times less"
        + ("" if aim.against == PEER else f" than {aim.against}")
        + f", the aim is {aim.factor:g}"
        for c in comparisons
        for aim in c.aims
        if c.met(aim) is False
    ]


def _take_turns(
    contenders: dict[str, Contender], clock: Clock, outcomes: dict[str, Outcome], options: Options
) -> None:
    started, turns = time.perf_counter(), list(contenders)
    for rounds in range(options.repeats):
        if rounds >= _LEAST_ROUNDS and time.perf_counter() - started > options.seconds:
            break
        for name in turns:
            gc.collect()
            clock.settle()
            outcomes[name].runs.append(contenders[name](clock))
        turns.append(turns.pop(0))  # no one always goes first


def _peak(run: Contender, clock: Clock) -> int:
    gc.collect()
    return peak_bytes(lambda: run(clock), clock.device)


def _divide(a: float, b: float) -> float:
    return a / b if b else float("inf")
