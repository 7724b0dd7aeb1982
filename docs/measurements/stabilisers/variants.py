"""A variant of a model, and its training."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from phantomgrad import (
    DEQ,
    Anderson,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    Solver,
    UnrolledPhantomGradient,
    jacobian_regularizer,
)
from phantomgrad.solvers import Map


@dataclass(frozen=True)
class Variant:
    """One row: a model and how it is trained. The defaults are without any remedy."""

    name: str
    norm: str = "none"
    bound: float | None = None
    weight_norm: bool = False
    regularisation: float = 0.0
    pretraining: int = 0
    budget: int = 40
    damping: float | None = None  # of fixed-point iteration in the place of Anderson
    upg: bool = False
    lr: float = 0.01
    usual_weights: bool = False  # initial ones, which are multiplied otherwise
    update: float = 1.0  # damping of the map itself

    def solver(self) -> Solver:
        if self.damping is not None:
            return FixedPoint(max_evaluations=self.budget, tol=1e-3, damping=self.damping)
        return Anderson(max_evaluations=self.budget, tol=1e-3)

    def gradient(self) -> GradientEstimator:
        if self.upg:
            return UnrolledPhantomGradient(steps=5, damping=0.5)
        return ImplicitGradient(solver=self.solver(), on_failure="ignore")


class Training:
    """Optimizer steps of a model, and what is counted while it trains."""

    def __init__(
        self, model: nn.Module, deq: DEQ, optimizer: torch.optim.Optimizer, variant: Variant
    ) -> None:
        self.model, self.deq, self.optimizer, self.variant = model, deq, optimizer, variant
        self.converged, self.evaluations, self.adjoint = [], [], []
        self.penalty: Tensor | None = None
        if variant.regularisation:
            deq.register_pass_hook(self._penalise)

    def _penalise(self, layer: DEQ, f: Map, z: Tensor, attached: Tensor) -> None:
        if attached.requires_grad:
            self.penalty = jacobian_regularizer(f, z)

    def step(self, loss: Tensor) -> bool:
        """Make an optimizer step; return whether loss and gradient are finite."""
        if self.penalty is not None:
            loss = loss + self.variant.regularisation * self.penalty
            self.penalty = None
        self.optimizer.zero_grad()
        solution = self.deq.last_solution
        if solution is not None:
            self.converged.append(solution.converged.double().mean().item())
            self.evaluations.append(solution.evaluations.double().mean().item())
        if not loss.isfinite():
            return False
        loss.backward()
        if self.deq.last_adjoint is not None:
            self.adjoint.append(self.deq.last_adjoint.evaluations.double().mean().item())
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not all(g.isfinite().all() for g in grads):
            return False
        self.optimizer.step()
        return True

    def result(self, radius: Tensor | None = None, **score: float) -> dict[str, Any]:
        """Return the counts; a run that met a number that is not finite has no radius."""
        return {
            "finished": radius is not None,
            **{name: round(value, 4) for name, value in score.items()},
            "converged": round(mean(self.converged), 4),
            "evaluations": round(mean(self.evaluations), 2),
            "adjoint_evaluations": round(mean(self.adjoint), 2),
            "radius": None if radius is None else round(radius.max().item(), 3),
            "steps": len(self.converged),
        }


def mean(values: list[float]) -> float:
    """Return the mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0
