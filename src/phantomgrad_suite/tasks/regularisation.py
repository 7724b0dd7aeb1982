"""Changes to the equilibrium layers in a training step: penalties, random solver budget."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_not_negative
from phantomgrad.deq import DEQ
from phantomgrad.jacobian import jacobian_regularizer, spectral_regularizer
from phantomgrad.solvers import IterativeSolver, Map
from phantomgrad_suite.runs.lengths import check_length, in_steps


@dataclass(frozen=True, kw_only=True)
class Regularisation(ABC):
    """A penalty at the equilibria of a step, added to the loss with a weight.

    The weight grows by ``increase`` at every multiple of ``every`` steps after ``from_step``. Both
    may be shares of the training, floats, until :meth:`over` makes them steps.
    """

    name: ClassVar[str]  # of its curve

    weight: float  # initial
    frequency: float = 1.0  # probability that a step has the penalty; 0 during pretraining
    increase: float = 0.0
    every: int | float = 35_000
    from_step: int | float = 32_000

    def __post_init__(self) -> None:
        check_not_negative("weight", self.weight)
        if not 0 <= self.frequency <= 1:
            raise ValueError(f"frequency must lie in [0, 1], got {self.frequency}")
        check_length("every", self.every, 1)
        check_length("from_step", self.from_step)

    def over(self, steps: float) -> Self:
        """Return the penalty of a training of so many ``steps``."""
        every, from_step = (in_steps(length, steps) for length in (self.every, self.from_step))
        return replace(self, every=max(every, 1), from_step=from_step)

    def weight_at(self, step: int) -> float:
        increases = step // self.every - self.from_step // self.every
        return self.weight + self.increase * max(increases, 0)

    def is_due(self) -> bool:
        return bool(torch.rand(()) < self.frequency)

    @abstractmethod
    def penalty(self, f: Map, z_star: Tensor, attached: Tensor) -> Tensor:
        """Return the penalty of one layer; the last state is ``attached``, with its gradient."""


@dataclass(frozen=True, kw_only=True)
class JacobianRegularisation(Regularisation):
    r"""The penalty :math:`\gamma \|J\|_F^2 / N` (Bai et al., 2021)."""

    name: ClassVar[str] = "jacobian"

    increase: float = 0.1
    samples: int = 1
    through_equilibrium: bool = False  # differentiate the penalty through z* as well

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("samples", self.samples, 1)

    def penalty(self, f: Map, z_star: Tensor, attached: Tensor) -> Tensor:
        z = attached if self.through_equilibrium else z_star.detach()
        return jacobian_regularizer(f, z, samples=self.samples)


@dataclass(frozen=True, kw_only=True)
class SpectralRegularisation(Regularisation):
    r"""The penalty :math:`\gamma \rho(J)` at the last state of the layer (STARS, arXiv:2605.26733).

    By power iteration, see :func:`phantomgrad.spectral_regularizer`.
    """

    name: ClassVar[str] = "spectral_radius"

    iterations: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("iterations", self.iterations, 1)

    def penalty(self, f: Map, z_star: Tensor, attached: Tensor) -> Tensor:
        return spectral_regularizer(f, attached.detach(), iterations=self.iterations)


@dataclass(frozen=True, kw_only=True)
class FixedPointRegularisation(Regularisation):
    r"""The penalty :math:`\gamma \|f(z) - z\|^2 / N` at the last state of the layer.

    N is the number of entries of z, as in :class:`JacobianRegularisation`. It is differentiated
    through both terms, so z must have the gradient of the whole map.
    """

    name: ClassVar[str] = "fixed_point"

    def penalty(self, f: Map, z_star: Tensor, attached: Tensor) -> Tensor:
        return (f(attached).to(attached.dtype) - attached).square().mean()


@contextmanager
def perturbed(
    layers: Sequence[DEQ], jitter: int, jacobian: Regularisation | None
) -> Iterator[dict[DEQ, Tensor]]:
    """Change equilibrium layers for a training step; yield what receives their penalties.

    All solver budgets are reduced by one random number of evaluations, at most ``jitter``.
    """
    fewer = int(torch.randint(jitter + 1, ())) if jitter else 0
    penalties: dict[DEQ, Tensor] = {}

    def measure(layer: DEQ, f: Map, z_star: Tensor, attached: Tensor) -> None:
        assert jacobian is not None
        penalties[layer] = jacobian.penalty(f, z_star, attached)

    with ExitStack() as undone:
        for layer in layers:
            solver = layer.solver
            if fewer and isinstance(solver, IterativeSolver):  # others have no budget
                undone.callback(setattr, layer, "solver", solver)
                budget = max(1, solver.max_evaluations - fewer)
                layer.solver = replace(solver, max_evaluations=budget)
            if jacobian is not None:
                undone.enter_context(layer.register_pass_hook(measure))
        yield penalties
