"""Cases: a solve of a cheap map, without gradient."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from phantomgrad.solvers import Anderson, Broyden, FixedPoint, Map
from phantomgrad_suite.bench.contest import OURS, PEER, Case, Contender, Run
from phantomgrad_suite.bench.peer import PeerSolver
from phantomgrad_suite.studies.meters import Clock, Watch

# MDEQ-Tiny on CIFAR-10, a small transformer, a batch of graphs in IGNN, and a small state.
SHAPES = ((64, 30720), (128, 64, 64), (1, 5354, 64), (512, 128))
_SOLVERS = {
    "fixed point": FixedPoint(tol=0),
    "Anderson": Anderson(tol=0, memory=6),
    "Broyden": Broyden(tol=0),
}


def solver_cases(shapes: Sequence[tuple[int, ...]] = SHAPES, evaluations: int = 23) -> list[Case]:
    """Return every solver on every state, from zero until its budget is spent."""
    cases = []
    for shape in shapes:
        for name, solver in _SOLVERS.items():
            ours = replace(solver, max_evaluations=evaluations)
            contenders = {
                OURS: partial(_contender, ours, shape),
                PEER: partial(_contender, PeerSolver(ours), shape),
            }
            cases.append(Case(name=f"{name} {shape}", contenders=contenders))
    return cases


def _contender(solver: Any, shape: tuple[int, ...], clock: Clock) -> Contender:
    watch = Watch(clock)
    solve = watch.over(solver).solve
    f, z0 = elementwise_map(shape, clock.device), torch.zeros(shape, device=clock.device)

    @torch.no_grad()
    def run() -> Run:
        solve(f, z0)
        solves = watch.take()
        return Run({"outside f": solves.outside, "total": solves.seconds}, solves.evaluations)

    return run


def elementwise_map(shape: tuple[int, ...], device: torch.device) -> Map:
    """Return ``x + c tanh z``, cheap; c in (-0.9, 0.9) lets no solver converge in its budget."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(device)
    c = torch.rand(shape, generator=generator).mul_(1.8).sub_(0.9).to(device)
    return lambda z: torch.addcmul(x, c, z.tanh())
