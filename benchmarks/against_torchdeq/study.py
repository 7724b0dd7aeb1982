"""Seconds and memory of this library and of torchdeq, side by side."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from against_torchdeq import peer
from against_torchdeq.watch import Watch
from phantomgrad.gradients import ImplicitGradient
from phantomgrad.solvers import Anderson, Broyden, FixedPoint, IterativeSolver, Map
from phantomgrad_suite.jobs.build import build
from phantomgrad_suite.jobs.compose import compose_row
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.studies.base import Findings, Study, progress
from phantomgrad_suite.studies.meters import (
    Clock,
    frozen_heap,
    paired_ratio,
    peak_bytes,
    spread,
)
from phantomgrad_suite.studies.throughput import TrainingStep

OURS, PEER = "ours", "torchdeq"
SOLVERS: dict[str, IterativeSolver] = {
    "FixedPoint": FixedPoint(tol=0),
    "Anderson": Anderson(tol=0, memory=6),
    "Broyden": Broyden(tol=0),
}

Contender = Callable[[], dict[str, float]]
"""A solve or a training step; returns its seconds by quantity."""


@dataclass(frozen=True, kw_only=True)
class PeerBench(Study):
    """Seconds and peak memory of solves and training steps, ours and torchdeq's, taking turns.

    Solves are of a cheap map on states of ``shapes``, steps are those of ``rows`` (with their batch
    sizes), without warnings and checks of our layers. Both sides have the same maps, weights,
    starts and budgets, which they spend in full. torchdeq takes the Jacobian of its implicit
    gradient at the image of the solver's result, so here all rows do.
    """

    shapes: Sequence[Sequence[int]]
    rows: Mapping[str, int]
    evaluations: int = 23  # of a solve
    solve_repeats: int = 15
    step_repeats: int = 5

    def measure(self, seed: int, device: torch.device) -> Findings:
        if (version := peer.version()) is None:
            raise UserError(peer.MISSING)
        for row in self.rows:
            check_row(row)
        clock = Clock(device)
        solves = [
            {"solver": name, "shape": list(shape), **self._solve(solver, shape, clock)}
            for shape in self.shapes
            for name, solver in SOLVERS.items()
        ]
        steps = [self._step(row, size, seed, clock) for row, size in self.rows.items()]
        numbers = {"clock": clock.name, "torchdeq": version, "solves": solves, "steps": steps}
        return Findings(numbers)

    def _solve(self, solver: IterativeSolver, shape: Sequence[int], clock: Clock) -> dict[str, Any]:
        ours = replace(solver, max_evaluations=self.evaluations)
        f, z0 = elementwise_map(shape, clock.device), torch.zeros(*shape, device=clock.device)
        contenders = {
            OURS: solving(ours, f, z0, clock),
            PEER: solving(peer.PeerSolver(ours), f, z0, clock),
        }
        return in_turns(contenders, clock, self.solve_repeats)

    def _step(self, row: str, batch_size: int, seed: int, clock: Clock) -> dict[str, Any]:
        ours, theirs = (step_of(row, batch_size, seed, clock) for _ in range(2))
        peer.use_peer(theirs.task)
        contenders = {OURS: watched(ours, clock), PEER: watched(theirs, clock)}
        label = {key: ours.config.label[key] for key in ("dataset", "method", "model")}
        facts = {"row": row, "label": label, "batch": ours.data.samples, "unit": ours.data.unit}
        return {**facts, **in_turns(contenders, clock, self.step_repeats)}


def elementwise_map(shape: Sequence[int], device: torch.device) -> Map:
    """Return ``x + c tanh z``, cheap; c in (-0.9, 0.9) lets no solver converge in its budget."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator).to(device)
    c = torch.rand(*shape, generator=generator).mul_(1.8).sub_(0.9).to(device)
    return lambda z: torch.addcmul(x, c, z.tanh())


def solving(solver: Any, f: Map, z0: Tensor, clock: Clock) -> Contender:
    """Return a solve, timed as a whole and outside of ``f``."""
    watch = Watch(clock)
    solve = watch.over(solver).solve

    @torch.no_grad()
    def run() -> dict[str, float]:
        solve(f, z0)
        taken = watch.take()
        return {"outside f": taken.outside, "total": taken.seconds}

    return run


def check_row(row: str) -> None:
    """Raise :class:`UserError` unless torchdeq can make the steps of ``row``."""
    config = compose_row(row)
    for name in ("jacobian", "budget_jitter"):
        if config.task.get(name):
            raise UserError(f"torchdeq's layers have no counterpart of task.{name}, in {row}")
    solver, gradient = (build(config.model[part], part) for part in ("solver", "gradient"))
    peer.get_layer(solver, gradient)


def step_of(row: str, batch_size: int, seed: int, clock: Clock) -> TrainingStep:
    """Return a step with the weights of ``seed``, whose layers do what torchdeq's do."""
    torch.manual_seed(seed)
    step = TrainingStep(row, batch_size, seed, clock, whole_budgets=True)
    for layer in step.layers:
        layer.check_map = False  # up to four evaluations of f more
        if isinstance(layer.gradient, ImplicitGradient):
            layer.gradient = replace(layer.gradient, at="image", on_failure="ignore")
    return step


def watched(step: TrainingStep, clock: Clock) -> Contender:
    """Return a training step; ``free`` is the step minus the time our solvers spend outside f."""
    watch = Watch(clock)
    for layer in step.layers:
        if isinstance(layer.gradient, ImplicitGradient):
            adjoint = watch.over(layer.gradient.solver)
            layer.gradient = replace(layer.gradient, solver=adjoint)
        layer.solver = watch.over(layer.solver)

    def run() -> dict[str, float]:
        seconds = step.step()
        times = {name: seconds[name] for name in ("step", "forward", "backward")}
        return {**times, "free": seconds["step"] - watch.take().outside}

    return run


def in_turns(contenders: Mapping[str, Contender], clock: Clock, repeats: int) -> dict[str, Any]:
    """Return memory and times of contenders, and how many times less time and memory ours take.

    In each round another one goes first; the ratios of times are medians over the rounds.
    """
    order, samples = list(contenders), {name: list[dict[str, float]]() for name in contenders}
    with frozen_heap():
        peaks = {}
        for name in order:
            contenders[name]()
            gc.collect()
            peaks[name] = peak_bytes(contenders[name], clock.device)
        for _ in progress(range(repeats)):
            for name in order:
                clock.settle()
                samples[name].append(contenders[name]())
            order.reverse()
    times = {
        name: {q: [each[q] for each in rounds] for q in rounds[0]}
        for name, rounds in samples.items()
    }
    found: dict[str, Any] = {
        name: {"seconds": {q: spread(s) for q, s in by.items()}, "peak_bytes": peaks[name]}
        for name, by in times.items()
    }
    less = {q: paired_ratio(times[PEER][q], ours) for q, ours in times[OURS].items()}
    return {**found, "times_less": {**less, "peak_bytes": peaks[PEER] / max(peaks[OURS], 1)}}
