"""All gradient estimators on one bench: how near they come to the exact gradient, and the cost."""

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from lightning.fabric.utilities import move_data_to_device
from safetensors.torch import load_file
from torch import Tensor

from phantomgrad.diagnostics import ExactGradient, agreement, estimated_gradient, exact_gradient
from phantomgrad.gradients import (
    BackpropThroughSolver,
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
from phantomgrad_suite.jobs.trained import configuration
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Check, read_record
from phantomgrad_suite.studies.base import Findings, Study, progress, rounded
from phantomgrad_suite.studies.meters import Clock, frozen_heap, peak_bytes

WEIGHTS = Path(__file__).resolve().parents[3] / "results" / "weights"
_TIGHT = Broyden(max_evaluations=100, tol=1e-6)

Run = Callable[[], tuple[Tensor, ...]]
Problem = tuple[Map, Tensor, Sequence[Tensor]]  # a map, a cotangent, the tensors wanted


@dataclass(frozen=True, kw_only=True)
class GradientBench(Study):
    r"""Cosine and norm ratio to the exact gradient, against products, seconds and peak memory.

    In the synthetic setting of Figure 1, where ``batch`` rows are solved for separately and the
    gradient is that by u; or, by its name in ``results/weights``, with a released ``model`` and the
    first training batch, where it is that by the cells' parameters, all layers in one vector.

    The equilibrium is that of ``solver``, from zero, which must be Broyden: the preconditioned
    estimator takes its inverse. Adjoints are solved by Broyden, to ``tolerances``, and by GMRES,
    plain and preconditioned, with ``products`` products. Only backpropagation through a solver
    includes a solve of its own, to the tolerance of ``solver`` in at most ``iterations``.

    A product is a backward pass through one evaluation of F. Each estimator takes one by the
    parameters, so that NPG and UPG take k. Seconds are the best of alternating ``repeats``.
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
        clock = Clock(device)
        with ExitStack() as stack:
            problems = (
                self._trained(seed, device, stack) if self.model else [self._drawn(seed, device)]
            )
            layers = [Layer.solved(*problem, self.solver) for problem in problems]
            exact = [layer.exact() for layer in layers]
            gradient = [part for found in exact for part in found.gradient]
            rows, runs = [], list[Run]()
            for name, (estimator, solver) in self.estimators().items():
                passes = [layer.passes(estimator, solver) for layer in layers]
                run = _all([layer.run(estimator, solver) for layer in layers])
                near = {k: rounded(x) for k, x in agreement(run(), gradient)._asdict().items()}
                peak = peak_bytes(run, device)
                rows.append({"name": name, **near, "products": passes, "peak_bytes": peak})
                runs.append(run)
            runs.append(_all([layer.solve(self.solver) for layer in layers]))
            with frozen_heap():
                rounds = [
                    [_seconds(clock, run) for run in runs] for _ in progress(range(self.repeats))
                ]
        *seconds, solve = map(min, zip(*rounds, strict=True))
        numbers = {
            "estimators": [{**row, "seconds": s} for row, s in zip(rows, seconds, strict=True)],
            "solve": {
                "seconds": solve,
                "evaluations": [int(x.solution.evaluations.max()) for x in layers],
                "residual": rounded(max(x.solution.residual.max() for x in layers)),
            },
            "exact": {
                "residual": rounded(max(x.residual.max() for x in exact)),
                "adjoint_residual": rounded(max(x.adjoint_residual.max() for x in exact)),
            },
            "radius": rounded(max(radii(x.f, x.solution.z, 50).max() for x in layers), 4),
            "clock": clock.name,
        }
        claim = "cosine of implicit differentiation at the smallest tolerance"
        return Findings(numbers, [Check.above(claim, rows[0]["cosine"], 0.9999)])

    def estimators(self) -> dict[str, tuple[GradientEstimator, Solver]]:
        """Return the estimators by name, each with its forward solver."""
        krylov = GMRES(max_evaluations=self.products, tol=0)
        found: dict[str, GradientEstimator] = {}
        for tol in sorted(self.tolerances):
            adjoint = Broyden(max_evaluations=self.solver.max_evaluations, tol=tol)
            found[f"Implicit, tol = {tol:g}"] = ImplicitGradient(
                solver=adjoint, on_failure="ignore"
            )
        name = f"GMRES({self.products})"
        found[f"Implicit, {name}"] = ImplicitGradient(solver=krylov, on_failure="ignore")
        found[f"Preconditioned, {name}"] = ImplicitGradient(
            solver=krylov, on_failure="ignore", preconditioner="forward"
        )
        for form, kind in (("UPG", UnrolledPhantomGradient), ("NPG", NeumannPhantomGradient)):
            for damping in self.dampings:
                for k in self.steps:
                    found[f"{form} A({k}, {damping:g})"] = kind(k, damping)
        found["NPG, k = 5, adaptive λ"] = NeumannPhantomGradient(5, "adaptive")
        found["One step"] = UnrolledPhantomGradient(1, 1.0)
        options = {"max_evaluations": self.iterations, "tol": self.solver.tol}
        recorded = {"BPTT": FixedPoint(**options), "Reversible BPTT": Reversible(**options)}
        return {
            **{name: (x, x.adapt_solver(self.solver)) for name, x in found.items()},
            **{name: (BackpropThroughSolver(), solver) for name, solver in recorded.items()},
        }

    def _drawn(self, seed: int, device: torch.device) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, self.lipschitz, self.nonlinearity, generator).to(device)
        u, y = torch.randn(2, self.batch, self.size, generator=generator).to(device)
        f: Map = partial(cell, u=u.requires_grad_())
        with torch.no_grad():
            z = self.solver.solve(f, torch.zeros_like(u)).z
        return f, (z - y) * (2 / y.numel()), [u]

    def _trained(self, seed: int, device: torch.device, stack: ExitStack) -> list[Problem]:
        path = WEIGHTS / f"{self.model}.json"
        if not path.is_file():
            raise UserError(f"model must be row and instance of a released one, got {self.model!r}")
        config = configuration(read_record(path))
        if root := config.runtime.dataset.get("root"):
            place = Path(root).relative_to(config.runtime.paths.data)
            config.runtime.dataset.root = str(Path(self.data, place))
        torch.manual_seed(seed)
        data: Any = build_data(config)
        data.setup("fit")
        task = build_task(config, data)
        task.evaluated.load_state_dict(load_file(path.with_suffix(".safetensors")))
        task.to(device).eval()
        batch = data.on_after_batch_transfer(
            move_data_to_device(next(iter(data.loader("train"))), device), 0
        )
        passes: list[Pass] = []
        for hook in watch(task, lambda *each: passes.append(Pass(*each))):
            stack.callback(hook.remove)
        task.training_loss(batch)[0].backward()
        replays = [stack.enter_context(each.replay()) for each in passes]
        return [(f, v, wanted) for f, _, v, wanted in replays]


@dataclass(frozen=True)
class Layer:
    """A map, the cotangent of its equilibrium, and the tensors by which it is differentiated."""

    f: Map
    v: Tensor
    wanted: Sequence[Tensor]
    solution: Solution

    @classmethod
    def solved(cls, f: Map, v: Tensor, wanted: Sequence[Tensor], solver: Solver) -> Self:
        """Return a layer at the equilibrium that ``solver`` finds, with its inverse."""
        solver = ImplicitGradient(preconditioner="forward").adapt_solver(solver)
        with torch.no_grad():
            return cls(f, v, wanted, solver.solve(f, torch.zeros_like(v)))

    def solve(self, solver: Solver) -> Run:
        return torch.no_grad()(lambda: (solver.solve(self.f, torch.zeros_like(self.v)).z,))

    def exact(self) -> ExactGradient:
        z = self.solution.z
        return exact_gradient(self.f, z, self.v, self.wanted, solver=_TIGHT, adjoint=_TIGHT)

    def run(self, estimator: GradientEstimator, solver: Solver) -> Run:
        """Return what computes an estimate; an adaptive damping has measured the map before."""
        f, z, v, wanted = self.f, self.solution.z, self.v, self.wanted
        if estimator.needs_recorded_solve:
            return lambda: pulled_back(solver.solve(f, torch.zeros_like(v)).z, wanted, v)
        estimator = copy.deepcopy(estimator).after(self.solution)
        estimator.observe(f, z)
        return lambda: estimated_gradient(f, z, v, estimator, wanted)

    def passes(self, estimator: GradientEstimator, solver: Solver) -> int:
        """Return how many backward passes through an evaluation of F an estimate takes."""
        count = 0

        def note(_: Tensor) -> None:
            nonlocal count
            count += 1

        def noted(z: Tensor) -> Tensor:
            fz = self.f(z)
            if fz.requires_grad:
                fz.register_hook(note)
            return fz

        run = replace(self, f=noted).run(estimator, solver)
        count = 0
        run()
        return count


def _all(runs: Sequence[Run]) -> Run:
    return lambda: tuple(part for run in runs for part in run())


def _seconds(clock: Clock, run: Run) -> float:
    clock.settle()
    return clock.time(run)
