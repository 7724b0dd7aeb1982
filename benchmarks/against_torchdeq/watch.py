"""The time of solves, and of the evaluations of the map inside them."""

import copy
from typing import Any, NamedTuple

from phantomgrad_suite.studies.meters import Clock, Mark


class Solves(NamedTuple):
    """Total time of some solves, the part of it outside ``f``, and the evaluations of ``f``."""

    seconds: float
    outside: float
    evaluations: int


class Watch:
    """Times solvers, and the evaluations of the map inside each solve."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Marks alone: keeping the maps would keep the tensors in their closures alive.
        self._solves: list[tuple[Mark, Mark]] = []
        self._evaluations: list[tuple[Mark, Mark]] = []

    def over(self, solver: Any) -> Any:
        """Return a copy of ``solver`` whose ``solve``, or ``solve_linear``, is timed."""
        method = "solve" if hasattr(solver, "solve") else "solve_linear"
        solve = self._timed(getattr(solver, method), self._solves)
        watched = copy.copy(solver)
        object.__setattr__(  # solvers are frozen dataclasses
            watched, method, lambda f, z0: solve(self._timed(f, self._evaluations), z0)
        )
        return watched

    def take(self) -> Solves:
        """Return what was timed since the last call."""
        total, inside = (
            sum(self._clock.seconds(*span) for span in spans)
            for spans in (self._solves, self._evaluations)
        )
        taken = Solves(total, total - inside, len(self._evaluations))
        self._solves.clear()
        self._evaluations.clear()
        return taken

    def _timed(self, call: Any, spans: list[tuple[Mark, Mark]]) -> Any:
        def timed(*arguments: Any) -> Any:
            start = self._clock.mark()
            result = call(*arguments)
            spans.append((start, self._clock.mark()))
            return result

        return timed
