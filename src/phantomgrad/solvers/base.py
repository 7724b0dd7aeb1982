"""The contract of solvers, and their result."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from phantomgrad.solvers.maps import Map


class Solution(NamedTuple):
    """The result of a solve, sample by sample.

    Attributes:
        z: best iterate of each sample, ``(B, *state)``, the start included (in a recorded solve,
            the first step instead, which is on the graph).
        residual: residual of the best iterate, ``(B,)``; ``inf`` if no evaluation was finite.
        iterations: steps until the sample stopped, ``(B,)``.
        evaluations: evaluations of ``f`` until the sample stopped, ``(B,)``.
        converged: whether ``residual < tol``, ``(B,)``.
        diverged: whether an evaluation was not finite, which stopped the sample, ``(B,)``; with
            neither, the budget was spent.
        trace: residual at each evaluation, ``(evaluations, B)``, ``nan`` after a sample has
            stopped; ``None`` unless ``record_trace`` is set.
    """

    z: Tensor
    residual: Tensor
    iterations: Tensor
    evaluations: Tensor
    converged: Tensor
    diverged: Tensor
    trace: Tensor | None = None


class Solver(ABC):
    """Turns a map and a start into a :class:`Solution`, sample by sample.

    A method that searches within a tolerance extends
    :class:`phantomgrad.solvers.IterativeSolver`, which needs only its steps.
    """

    differentiable: ClassVar[bool] = False
    """Whether autograd can record ``solve``, as ``BackpropThroughSolver`` needs."""

    fixed_length: ClassVar[bool] = False
    """Whether the number of steps is part of the model, as in :class:`phantomgrad.Steps`."""

    @abstractmethod
    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Search the equilibrium of ``f`` from ``z0``.

        Args:
            f: maps ``(B, *state)`` to a new tensor of the same shape, in any dtype.
            z0: starting states, ``(B, *state)``, in floating point.
        """

    def reachable(self, dtype: torch.dtype) -> Self:
        """Return a solver whose tolerance a map computed in ``dtype`` can reach."""
        return self

    def relative_residual(self, solution: Solution) -> Tensor:
        """Return the residuals of ``solution`` relative to the size of its states, ``(B,)``."""
        return solution.residual


def check_start(z0: Tensor) -> None:
    """Raise unless ``z0`` is a batch of floating-point states."""
    if z0.dim() == 0:
        raise ValueError("z0 must have a batch dimension, got a scalar tensor")
    if not z0.is_floating_point():
        raise ValueError(f"z0 must be a floating-point tensor, got {z0.dtype}")
