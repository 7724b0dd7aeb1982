"""How costs grow with the size of a problem, and whether faster than the mathematics says.

    OMP_NUM_THREADS=1 python benchmarks/growth.py growth.svg

A line of the table has the exponent p of seconds ~ size^p, fitted without the smallest sizes, where
constant costs count, and the one that the method has on paper. Seconds are CPU time, the least of
some repeats; all sizes of a line take turns.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from against_torchdeq.study import SOLVERS, elementwise_map
from phantomgrad import NeumannPhantomGradient, UnrolledPhantomGradient
from phantomgrad.gradients import GradientEstimator
from phantomgrad.models import normalized_adjacency
from phantomgrad.models.ignn import IGNNCell
from phantomgrad.solvers import IterativeSolver
from phantomgrad_suite.jobs.environment import describe_environment
from phantomgrad_suite.report.figures.style import Lines, curve, render
from phantomgrad_suite.studies.meters import Clock

CPU = torch.device("cpu")
REPEATS = 9
VARIABLES = ("state size", "batch", "edges", "k", "K")
GRADIENTS = {"UPG": UnrolledPhantomGradient, "NPG": NeumannPhantomGradient}

Call = Callable[[], object]


@dataclass(frozen=True)
class Line:
    """Calls of increasing ``sizes``; ``on_paper`` is the exponent of their cost."""

    name: str
    variable: str
    sizes: Sequence[int]
    make: Callable[[int], Call]
    on_paper: float = 1.0

    def seconds(self) -> list[float]:
        """Return the least seconds of each size."""
        calls = [self.make(size) for size in self.sizes]
        for call in calls:
            call()
        return [min(samples) for samples in Clock(CPU).take_turns(calls, REPEATS)]


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope in logarithms, without the smallest sizes: of five, two are left out."""
    half = (len(sizes) - 1) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])


def solve(solver: IterativeSolver, batch: int, size: int, evaluations: int = 10) -> Call:
    """Return a solve that spends its budget."""
    f, z0 = elementwise_map((batch, size), CPU), torch.zeros(batch, size)
    return torch.no_grad()(partial(replace(solver, max_evaluations=evaluations).solve, f, z0))


def evaluation(edges: int) -> Call:
    """Return an evaluation of IGNN's map on a batch of graphs of 40 nodes with 160 edges."""
    graphs, cell = max(edges // 160, 1), IGNNCell(64)
    torch.nn.init.uniform_(cell.weight, -0.01, 0.01)
    offsets = 40 * torch.arange(graphs).repeat_interleave(edges // graphs)
    propagation = normalized_adjacency(offsets + torch.randint(40, (2, len(offsets))), 40 * graphs)
    z, injection = torch.randn(2, 40 * graphs, 64)
    return torch.no_grad()(partial(cell, z, injection, propagation))


def attachment(kind: Callable[[int, float], GradientEstimator], steps: int) -> Call:
    """Return a phantom gradient of ``steps`` with its backward."""
    x, weight = torch.randn(32, 256), (torch.randn(256, 256) / 64).requires_grad_()
    estimator, z = kind(steps, 0.5), torch.zeros(32, 256)

    def call() -> tuple[Tensor, ...]:
        attached = estimator.attach(lambda h: torch.tanh(h @ weight + x), z)
        return torch.autograd.grad(attached.sum(), weight)

    return call


def lines() -> list[Line]:
    """Return all lines."""
    found = []
    for name, solver in SOLVERS.items():
        states, batches, budgets = 10 ** np.arange(3, 8), 4 ** np.arange(6), (12, 25, 50, 100)
        # Broyden's method reads all earlier steps at each evaluation.
        squared = 2.0 if name == "Broyden" else 1.0
        found += [
            Line(name, "state size", states.tolist(), partial(solve, solver, 1)),
            Line(
                name,
                "batch",
                batches.tolist(),
                lambda batch, solver=solver: solve(solver, batch, 1024),
            ),
            Line(name, "K", budgets, partial(solve, solver, 8, 4096), squared),
        ]
    found += [
        Line(name, "k", (12, 25, 50, 100), partial(attachment, kind))
        for name, kind in GRADIENTS.items()
    ]
    return [*found, Line("IGNN, f", "edges", (10 ** np.arange(3, 7)).tolist(), evaluation)]


def main(figure: Path) -> None:
    """Measure all lines, print their table and draw those of the solvers."""
    torch.manual_seed(0)
    print(describe_environment(CPU)["processor"])
    print("| grows with | cost of | sizes | exponent | on paper |\n|---|---|---|---:|---:|")
    curves = []
    for line in sorted(lines(), key=lambda line: VARIABLES.index(line.variable)):
        seconds = line.seconds()
        sizes = f"{line.sizes[0]:,} to {line.sizes[-1]:,}"
        fitted = f"{exponent(line.sizes, seconds):.2f} | {line.on_paper:g}"
        print(f"| {line.variable} | {line.name} | {sizes} | {fitted} |", flush=True)
        if line.name in SOLVERS:
            curves.append(curve(line.name, line.sizes, seconds, "CPU seconds", line.variable))
    title = "CPU time of a solve by state size, batch and budget K"
    plot = Lines("growth", "", title, pd.concat(curves, ignore_index=True), log="xy")
    figure.write_bytes(render(plot.draw)["svg"])


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["growth.svg"]))
