"""All gradient estimators on one bench: how near they come to the exact gradient, and the cost."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phantomgrad.diagnostics import agreement, estimated_gradient, exact_gradient
from phantomgrad.gradients import (
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.jacobian import pulled_back
from phantomgrad.models import SyntheticCell
from phantomgrad.nn.linear import Nonlinearity
from phantomgrad.solvers import (
    GMRES,
    Broyden,
    FixedPoint,
    IterativeSolver,
    Map,
    Reversible,
    Solution,
    Solver,
)
from phantomgrad_suite.callbacks.capture import Pass, radii, watch
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.trained import configuration, data_in, read_released
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, rounded
from phantomgrad_suite.studies.meters import Clock, peak_bytes

Gradient = tuple[Tensor, ...]
Estimate = Callable[[Map], Gradient]
"""Estimates the gradient at a layer; its argument is the map of the layer."""


class Layer(NamedTuple):
    """A map at its equilibrium."""

    f: Map
    v: Tensor  # the cotangent of the equilibrium
    wanted: Sequence[Tensor]  # the tensors to differentiate by
    solution: Solution

    def estimate(self, estimator: GradientEstimator | Solver) -> Estimate:
        """Return an estimator at this layer; of a solver, the steps are differentiated."""
        v, wanted, solution = self.v, self.wanted, self.solution
        if isinstance(estimator, Solver):
            return lambda f: pulled_back(estimator.solve(f, torch.zeros_like(v)).z, wanted, v)
        own = copy.deepcopy(estimator).after(solution)
        own.observe(self.f, solution.z)  # an adaptive damping measures the map beforehand
        return lambda f: estimated_gradient(f, solution.z, v, own, wanted)

    def products(self, estimate: Estimate) -> int:
        """Return how many backward passes through an evaluation of F an estimate takes."""
        passes = []

        def counted(z: Tensor) -> Tensor:
            fz: Any = self.f(z)
            if fz.requires_grad:
                fz.register_hook(lambda _: passes.append(1))
            return fz  # type: ignore[no-any-return]

        estimate(counted)
        return len(passes)


@dataclass(frozen=True, kw_only=True)
class GradientBench(Study):
    """Cosine and norm ratio to the exact gradient, against products, seconds and peak memory.

    The layer is that of the synthetic setting (Figure 1), whose ``batch`` rows are separate samples
    and which is differentiated by u. With a released ``model``, by its name in ``results/weights``,
    the layers are those of this model in its first training batch, differentiated by the parameters
    of their cells; the gradients of all layers form one vector.

    ``solver``, which must be Broyden, finds the equilibria from zero; the preconditioned estimator
    takes its inverse. Adjoints are solved by Broyden, to one of the ``tolerances``, and by GMRES
    with a number of ``products``. Backpropagation through a solver is through a solve of its own,
    to the tolerance of ``solver`` in at most ``iterations``.

    A product is a backward pass through one evaluation of F. Each estimator takes one for the
    wanted tensors, so that NPG and UPG take k. Seconds are the best of ``repeats``, in which the
    estimators take turns.
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
        clock, tight = Clock(device), Broyden(max_evaluations=100, tol=1e-6)
        with self.layers(seed, device) as layers:
            exact = [
                exact_gradient(f, solution.z, v, wanted, solver=tight, adjoint=tight)
                for f, v, wanted, solution in layers
            ]
            gradient = [part for each in exact for part in each.gradient]
            rows, runs = list[dict[str, Any]](), list[Callable[[], object]]()
            for name, estimator in self.estimators().items():
                estimates = [layer.estimate(estimator) for layer in layers]
                run = partial(joined, layers, estimates)
                found = {q: rounded(x) for q, x in agreement(run(), gradient)._asdict().items()}
                products = [x.products(e) for x, e in zip(layers, estimates, strict=True)]
                peak = peak_bytes(run, device)
                rows.append({"name": name, **found, "products": products, "peak_bytes": peak})
                runs.append(run)
            runs.append(lambda: [from_zero(self.solver, x.f, x.v) for x in layers])
            *seconds, solve = map(min, clock.take_turns(runs, self.repeats))
            radius = max(radii(x.f, x.solution.z, 50).max() for x in layers)
        solutions = [layer.solution for layer in layers]
        numbers = {
            "estimators": [{**row, "seconds": s} for row, s in zip(rows, seconds, strict=True)],
            "solve": {
                "seconds": solve,
                "evaluations": [int(x.evaluations.max()) for x in solutions],
                "residual": rounded(max(x.residual.max() for x in solutions)),
            },
            "exact": {
                "residual": rounded(max(x.residual.max() for x in exact)),
                "adjoint_residual": rounded(max(x.adjoint_residual.max() for x in exact)),
            },
            "radius": rounded(radius, 4),
            "clock": clock.name,
        }
        claim = "cosine of implicit differentiation at the smallest tolerance"
        return Findings(numbers, [Check.above(claim, rows[0]["cosine"], 0.9999)])

    def estimators(self) -> dict[str, GradientEstimator | Solver]:
        """Return the estimators; a solver stands for backpropagation through its steps."""
        implicit = partial(ImplicitGradient, on_failure="ignore")
        broyden = partial(Broyden, max_evaluations=self.solver.max_evaluations)
        krylov, name = GMRES(max_evaluations=self.products, tol=0), f"GMRES({self.products})"
        phantom = {"UPG": UnrolledPhantomGradient, "NPG": NeumannPhantomGradient}
        n, tol = self.iterations, self.solver.tol
        return {
            **{
                f"Implicit, tol = {t:g}": implicit(solver=broyden(tol=t))
                for t in sorted(self.tolerances)
            },
            f"Implicit, {name}": implicit(solver=krylov),
            f"Preconditioned, {name}": implicit(solver=krylov, preconditioner="forward"),
            **{
                f"{form} A({k}, {damping:g})": kind(k, damping)
                for form, kind in phantom.items()
                for damping in self.dampings
                for k in self.steps
            },
            "NPG, k = 5, adaptive λ": NeumannPhantomGradient(5, "adaptive"),
            "One step": UnrolledPhantomGradient(1, 1.0),
            "BPTT": FixedPoint(max_evaluations=n, tol=tol),
            "Reversible BPTT": Reversible(max_evaluations=n, tol=tol),
        }

    @contextmanager
    def layers(self, seed: int, device: torch.device) -> Iterator[list[Layer]]:
        """Yield the layers at the equilibria of ``solver``, with its inverse."""
        solver = ImplicitGradient(preconditioner="forward").adapt_solver(self.solver)
        with ExitStack() as stack:
            problems = [self._synthetic(seed, device)] if self.model is None else []
            for each in self._passes(self.model, seed, device) if self.model else []:
                f, _, v, wanted = stack.enter_context(each.replay())
                problems.append((f, v, wanted))
            yield [Layer(f, v, wanted, from_zero(solver, f, v)) for f, v, wanted in problems]

    def _synthetic(self, seed: int, device: torch.device) -> tuple[Map, Tensor, Sequence[Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, self.lipschitz, self.nonlinearity, generator).to(device)
        u, y = torch.randn(2, self.batch, self.size, generator=generator).to(device)
        f: Map = partial(cell, u=u.requires_grad_())
        z = from_zero(self.solver, f, u).z
        return f, (z - y) * (2 / y.numel()), [u]

    def _passes(self, name: str, seed: int, device: torch.device) -> list[Pass]:
        """Return the passes through the layers of a released model in a training step."""
        _, record, weights, _ = read_released(name)
        config = configuration(record, data_in(Path(self.data), record))
        torch.manual_seed(seed)
        data: Any = build_data(config)
        data.setup("fit")
        task = build_task(config, data)
        task.evaluated.load_state_dict(weights)
        task.to(device).eval()
        batch = task.transfer_batch_to_device(next(iter(data.loader("train"))), device, 0)
        passes: list[Pass] = []
        watch(task, lambda *each: passes.append(Pass(*each)))
        loss, _ = task.training_loss(data.on_after_batch_transfer(batch, 0))
        torch.autograd.backward(loss)
        return passes


def joined(layers: Sequence[Layer], estimates: Sequence[Estimate]) -> Gradient:
    """Return the estimates at all layers, one after the other."""
    pairs = zip(layers, estimates, strict=True)
    return tuple(part for layer, estimate in pairs for part in estimate(layer.f))


@torch.no_grad()
def from_zero(solver: Solver, f: Map, like: Tensor) -> Solution:
    """Return what ``solver`` finds from zeros, a state of the shape of ``like``."""
    return solver.solve(f, torch.zeros_like(like))
