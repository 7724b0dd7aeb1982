"""All gradient estimators on one bench: how near they come to the exact gradient, and the cost."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from phantomgrad.diagnostics import agreement, exact_gradient
from phantomgrad.gradients import (
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.solvers import GMRES, Broyden, FixedPoint, IterativeSolver, Reversible, Solver
from phantomgrad_suite.callbacks.capture import radii
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, rounded
from phantomgrad_suite.studies.layers import Layer, joined, released_layers, synthetic_layer
from phantomgrad_suite.studies.meters import Clock, peak_bytes
from phantomgrad_suite.studies.synthetic import Nonlinearity, SyntheticCell


@dataclass(frozen=True, kw_only=True)
class GradientBench(Study):
    """Cosine and norm ratio to the exact gradient, against products, seconds and peak memory.

    In the synthetic setting of Figure 1, where ``batch`` rows are separate samples, the gradient is
    taken with respect to u; with a released ``model``, named here, and its first training batch,
    with respect to the parameters of the cells, all layers in one vector.

    ``solver`` finds the equilibria, from zero. It must be Broyden: the preconditioned estimator
    takes its inverse. Adjoints are solved by Broyden, to ``tolerances``, and by GMRES, plain and
    preconditioned, with ``products`` products. Backpropagation through a solver includes a solve of
    its own, to the tolerance of ``solver`` in at most ``iterations``.

    A product is a backward pass through one evaluation of F. Every estimator takes one for the
    parameters or u, so NPG and UPG take k. Seconds are the least of ``repeats``, in turns.
    """

    solver: IterativeSolver
    model: str | None = None
    nonlinearity: Nonlinearity = "tanh"
    lipschitz: float = 0.9
    size: int = 128
    batch: int = 64
    tolerances: Sequence[float] = (1e-6, 1e-2, 0.1, 0.3)
    products: int = 5
    steps: Sequence[int] = (2, 5, 9)
    dampings: Sequence[float] = (0.5, 1.0)
    iterations: int = 100
    repeats: int = 9
    data: str = "data"

    def measure(self, seed: int, device: torch.device) -> Findings:
        clock, solve, estimators = Clock(device), self.solver.solve, self.estimators()
        tight = Broyden(max_evaluations=100, tol=1e-6)
        with self.layers(seed, device) as layers:
            exact = [
                exact_gradient(f, solution.z, v, wanted, solver=tight, adjoint=tight)
                for f, v, wanted, solution in layers
            ]
            gradient = [part for each in exact for part in each.gradient]
            runs = [joined([layer.run(each) for layer in layers]) for each in estimators.values()]
            near = [agreement(run(), gradient) for run in runs]
            calls = [*runs, lambda: [solve(x.f, torch.zeros_like(x.v)) for x in layers]]
            *seconds, forward = map(min, clock.take_turns(calls, self.repeats))
            numbers = {
                "estimators": [
                    {
                        "name": name,
                        "cosine": rounded(close.cosine),
                        "norm_ratio": rounded(close.norm_ratio),
                        "products": [layer.products(estimators[name]) for layer in layers],
                        "peak_bytes": peak_bytes(run, device),
                        "seconds": least,
                    }
                    for name, run, close, least in zip(estimators, runs, near, seconds, strict=True)
                ],
                "solve": {
                    "seconds": forward,
                    "evaluations": [int(x.solution.evaluations.max()) for x in layers],
                    "residual": largest(x.solution.residual for x in layers),
                },
                "exact": {
                    "residual": largest(x.residual for x in exact),
                    "adjoint_residual": largest(x.adjoint_residual for x in exact),
                },
                "radius": largest((radii(x.f, x.solution.z, 50) for x in layers), 4),
                "clock": clock.name,
            }
        claim = "cosine of implicit differentiation at the smallest tolerance"
        return Findings(numbers, [Check.above(claim, rounded(near[0].cosine), 0.9999)])

    def layers(self, seed: int, device: torch.device) -> AbstractContextManager[list[Layer]]:
        """Return the layers at the equilibria of ``solver``, with its inverse."""
        solver = ImplicitGradient(preconditioner="forward").adapt_solver(self.solver)
        if self.model:
            torch.manual_seed(seed)
            return released_layers(self.model, Path(self.data), solver, device)
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, self.lipschitz, self.nonlinearity, generator).to(device)
        return nullcontext([synthetic_layer(cell, (self.batch, self.size), solver, generator)])

    def estimators(self) -> dict[str, GradientEstimator | Solver]:
        """Return the estimators; a solver stands for backpropagation through its steps."""
        implicit = partial(ImplicitGradient, on_failure="ignore")
        broyden = partial(Broyden, max_evaluations=self.solver.max_evaluations)
        krylov, name = GMRES(max_evaluations=self.products, tol=0), f"GMRES({self.products})"
        n, tol = self.iterations, self.solver.tol
        kinds = {"UPG": UnrolledPhantomGradient, "NPG": NeumannPhantomGradient}
        by_tolerance = {
            f"Implicit, tol = {x:g}": implicit(solver=broyden(tol=x))
            for x in sorted(self.tolerances)
        }
        phantom = {
            f"{form} A({k}, {damping:g})": kind(k, damping)
            for form, kind in kinds.items()
            for damping in self.dampings
            for k in self.steps
        }
        return {
            **by_tolerance,
            f"Implicit, {name}": implicit(solver=krylov),
            f"Preconditioned, {name}": implicit(solver=krylov, preconditioner="forward"),
            **phantom,
            "NPG, k = 5, adaptive λ": NeumannPhantomGradient(5, "adaptive"),
            "One step": UnrolledPhantomGradient(1, 1.0),
            "BPTT": FixedPoint(max_evaluations=n, tol=tol),
            "Reversible BPTT": Reversible(max_evaluations=n, tol=tol),
        }


def largest(values: Iterable[Tensor], digits: int = 8) -> float:
    """Return the largest entry, rounded."""
    return rounded(max(value.max() for value in values), digits)
