"""Changes to the equilibrium layers in a training step: Jacobian penalty, random solver budget."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_not_negative, check_number
from phantomgrad.deq import DEQ
from phantomgrad.jacobian import jacobian_regularizer
from phantomgrad.solvers import IterativeSolver, Map
from phantomgrad_suite.runs.lengths import check_length, in_steps


@dataclass(frozen=True, kw_only=True)
class JacobianRegularisation:
    r"""The penalty :math:`\gamma \|J\|_F^2 / N` at the equilibria of a step (Bai et al., 2021).

    The weight grows by ``increase`` at every multiple of ``every`` steps after ``from_step``. Both
    may be shares of the training, floats, until :meth:`over` makes them steps.
    """

    weight: float  # initial gamma
    frequency: float = 1.0  # probability that a step has the penalty; 0 during pretraining
    increase: float = 0.1
    every: int | float = 35_000
    from_step: int | float = 32_000
    samples: int = 1
    through_equilibrium: bool = False  # differentiate the penalty through z* as well

    def __post_init__(self) -> None:
        check_not_negative("weight", self.weight)
        check_number("increase", self.increase)
        if not 0 <= self.frequency <= 1:
            raise ValueError(f"frequency must lie in [0, 1], got {self.frequency}")
        check_length("every", self.every, 1)
        check_length("from_step", self.from_step)
        check_at_least("samples", self.samples, 1)

    def over(self, steps: float) -> "JacobianRegularisation":
        """Return the penalty of a training of so many ``steps``."""
        every, from_step = (in_steps(length, steps) for length in (self.every, self.from_step))
        return replace(self, every=max(every, 1), from_step=from_step)

    def weight_at(self, step: int) -> float:
        increases = step // self.every - self.from_step // self.every
        return self.weight + self.increase * max(increases, 0)

    def is_due(self) -> bool:
        return bool(torch.rand(()) < self.frequency)

    def penalty(self, f: Map, z_star: Tensor, attached: Tensor) -> Tensor:
        z = attached if self.through_equilibrium else z_star.detach()
        return jacobian_regularizer(f, z, samples=self.samples)


@contextmanager
def perturbed(
    layers: Sequence[DEQ], jitter: int, jacobian: JacobianRegularisation | None
) -> Iterator[list[Tensor]]:
    """Change equilibrium layers for a training step; yield a list that receives their penalties.

    All solver budgets are reduced by one random number of evaluations, at most ``jitter``.
    """
    solvers = [layer.solver for layer in layers]
    fewer = int(torch.randint(jitter + 1, ())) if jitter else 0
    penalties: list[Tensor] = []
    found: dict[DEQ, Tensor] = {}
    hooks = []

    def measure(layer: DEQ, f: Map, z_star: Tensor, attached: Tensor) -> None:
        assert jacobian is not None
        found[layer] = jacobian.penalty(f, z_star, attached)

    try:
        for layer, solver in zip(layers, solvers, strict=True):
            if fewer and isinstance(solver, IterativeSolver):  # others have no budget
                budget = max(1, solver.max_evaluations - fewer)
                layer.solver = replace(solver, max_evaluations=budget)
            if jacobian is not None:
                hooks.append(layer.register_pass_hook(measure))
        yield penalties
        penalties += [found[layer] for layer in layers if layer in found]
    finally:
        for layer, solver in zip(layers, solvers, strict=True):
            layer.solver = solver
        for hook in hooks:
            hook.remove()
