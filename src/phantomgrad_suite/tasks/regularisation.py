"""What a training step does to its equilibrium layers: jitter of the budget, Jacobian penalty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_number
from phantomgrad.deq import DEQ
from phantomgrad.jacobian import jacobian_regularizer
from phantomgrad.solvers import Map


@dataclass(frozen=True, kw_only=True)
class JacobianRegularisation:
    r"""The penalty :math:`\gamma \|J\|_F^2 / N` at the equilibria of a step (Bai et al., 2021).

    :math:`J = \partial f / \partial z`, see :func:`phantomgrad.jacobian.jacobian_regularizer`; the
    mean over the processes of a distributed run. It is part of a random share of the steps, of
    none in pretraining, and of no evaluation. The weight grows along the run.

    Args:
        weight: :math:`\gamma` at the beginning.
        frequency: the probability with which a step has it.
        increase: what is added to the weight at every multiple of ``every``.
        every: so many optimizer steps.
        from_step: up to this step nothing is added.
        samples: vectors of the estimate.
        through_equilibrium: let the gradient also move the equilibrium, through the gradient
            estimator of the layer; else the penalty reaches parameters and inputs of ``f`` alone.

    Raises:
        ValueError: a number is out of its range.
    """

    weight: float
    frequency: float = 1.0
    increase: float = 0.1
    every: int = 35_000
    from_step: int = 32_000
    samples: int = 1
    through_equilibrium: bool = False

    def __post_init__(self) -> None:
        for name in ("weight", "frequency", "increase"):
            check_number(name, getattr(self, name))
        if not self.weight >= 0:
            raise ValueError(f"weight must not be negative, got {self.weight}")
        if not 0 <= self.frequency <= 1:
            raise ValueError(f"frequency must lie in [0, 1], got {self.frequency}")
        check_at_least("every", self.every, 1)
        check_at_least("from_step", self.from_step, 0)
        check_at_least("samples", self.samples, 1)

    def weight_at(self, step: int) -> float:
        """Return the weight after so many optimizer steps."""
        passed = step // self.every - self.from_step // self.every
        return self.weight + self.increase * max(passed, 0)

    def is_due(self) -> bool:
        """Draw from torch's global generator whether a step has the penalty."""
        return bool(torch.rand(()) < self.frequency)

    def penalty(self, f: Map, z_star: Tensor, attached: Tensor) -> Tensor:
        """Return the estimate at an equilibrium, without its weight."""
        z = attached if self.through_equilibrium else z_star.detach()
        return jacobian_regularizer(f, z, samples=self.samples)


@contextmanager
def penalised(layers: Sequence[DEQ], by: JacobianRegularisation | None) -> Iterator[list[Tensor]]:
    """Yield a list that holds, at the end, the penalty of each layer that was recorded."""
    penalties: list[Tensor] = []
    for layer in layers:
        layer.penalty = None if by is None else by.penalty
    try:
        yield penalties
        penalties += [layer.last_penalty for layer in layers if layer.last_penalty is not None]
    finally:
        for layer in layers:
            layer.penalty = layer.last_penalty = None


@contextmanager
def jittered(layers: Sequence[DEQ], jitter: int) -> Iterator[None]:
    """Take a random number of evaluations, up to ``jitter``, from the budget of each solver.

    One number for all layers, drawn from torch's global generator; none is drawn for no jitter.
    """
    solvers = [layer.solver for layer in layers]
    fewer = int(torch.randint(jitter + 1, ())) if jitter else 0
    try:
        for layer, solver in zip(layers, solvers, strict=True):
            layer.solver = replace(solver, max_evaluations=max(1, solver.max_evaluations - fewer))
        yield
    finally:
        for layer, solver in zip(layers, solvers, strict=True):
            layer.solver = solver
