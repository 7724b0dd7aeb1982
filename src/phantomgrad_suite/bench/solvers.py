"""Cases: one solve, without gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from phantomgrad.solvers import Anderson, Broyden, FixedPoint, Map, Solver
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.contest import MEMORY, OURS, PEER, PLAIN, Aim, Case, Contender, Run
from phantomgrad_suite.bench.maps import elementwise_map
from phantomgrad_suite.bench.plain import plain_broyden
from phantomgrad_suite.studies.clock import Clock, time_outside

STATES = ((64, 30720), (128, 64, 64), (1, 5354, 64), (512, 128))
"""MDEQ-Tiny on CIFAR-10, a small transformer, a batch of graphs in IGNN, and a small one."""

_NO_SLOWER, _HALF_THE_MEMORY = Aim("total", 1.0), Aim(MEMORY, 2.0)
_SOLVERS: dict[str, tuple[Solver, tuple[Aim, ...]]] = {
    "fixed point": (FixedPoint(tol=0), (Aim("outside f", 2.0), _NO_SLOWER)),
    "Anderson": (Anderson(tol=0, memory=6), (Aim("outside f", 2.0), _NO_SLOWER)),
    "Broyden": (Broyden(tol=0), (Aim("outside f", 4.0), _HALF_THE_MEMORY, _NO_SLOWER)),
}


@dataclass(frozen=True)
class SolverCase(Case):
    """A solver on a cheap map, from zero, until its budget is spent."""

    name: str
    solver: Solver
    shape: tuple[int, ...]
    aims: tuple[Aim, ...]

    def contenders(self, device: torch.device, with_peer: bool) -> dict[str, Contender]:
        """Return ours, the peer's, and for Broyden the plain form."""
        f = elementwise_map(self.shape, device)
        z0 = torch.zeros(self.shape, device=device)
        solves: dict[str, Any] = {OURS: lambda f: self.solver.solve(f, z0)}
        if with_peer:
            solves[PEER] = lambda f: peer.solve(self.solver, f, z0)
        if isinstance(self.solver, Broyden):
            solves[PLAIN] = lambda f: plain_broyden(f, z0, self.solver.max_evaluations)
        return {name: _contender(solve, f) for name, solve in solves.items()}


def solver_cases(
    states: tuple[tuple[int, ...], ...] = STATES, evaluations: int = 23
) -> list[SolverCase]:
    """Return every solver on every state.

    On the smallest state nothing is asked of Broyden's memory: what it keeps in products of steps
    weighs as much there as the steps it saves.
    """
    return [
        SolverCase(
            name=f"{name} {shape}",
            solver=replace(solver, max_evaluations=evaluations),
            shape=shape,
            aims=tuple(a for a in aims if a != _HALF_THE_MEMORY or math.prod(shape[1:]) > 1000),
        )
        for shape in states
        for name, (solver, aims) in _SOLVERS.items()
    ]


def _contender(solve: Any, f: Map) -> Contender:
    @torch.no_grad()
    def run(clock: Clock) -> Run:
        return Run(*time_outside(solve, f, clock))

    return run
