"""The contract of solvers, and their result."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from phantomgrad.solvers.context import full_precision
from phantomgrad.solvers.maps import Map

_S = TypeVar("_S", bound=Any)


class Inverse(NamedTuple):
    r"""An estimate of :math:`(I - J)^{-1}` that a solve leaves, one matrix for each sample.

    :math:`I + S_+^\top W^\top S`. The rows of :math:`S_+` are the k + 1 steps of the solve, scaled
    to unit length; S has the first k of them.

    Attributes:
        steps: :math:`S_+`, unit vectors, ``(B, k + 1, D)``.
        weights: W, ``(B, k, k + 1)``.
        layout: how states become ``(B, D)``, and how they come back.
    """

    steps: Tensor
    weights: Tensor
    layout: tuple[Map, Map]

    def transposed(self, v: Tensor) -> Tensor:
        r"""Return the product of the transpose, an estimate of :math:`(I - J^\top)^{-1} v`."""
        flatten, restore = self.layout
        flat = flatten(v.to(self.steps.dtype))
        with full_precision(v.device):
            # The long operand goes last, as in Broyden's method.
            products = torch.bmm(flat.unsqueeze(1), self.steps.mT)  # (B, 1, k + 1)
            coefficients = torch.bmm(products, self.weights.mT)
            added = torch.bmm(coefficients, self.steps[:, :-1])
        return restore(flat + added.squeeze(1)).to(v.dtype)


def inverse_parts(
    steps: Tensor, system: Tensor, products: Tensor, void: Tensor, best: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``steps`` and ``weights`` of an :class:`Inverse` from Broyden's updates, in place.

    ``-H^T v = v + sum_j c_j s_j / ||s_j||^2``, where c solves the transpose of the lower triangular
    ``system`` of the forward method for the ``products`` of the ``s_j`` with v, those with
    ``||s_j||^2 u_j``. All are scaled to unit steps, since steps shrink by many orders. Updates that
    are ``void``, ``(B, k)``, or later than the ``best`` iterate, ``(B,)``, drop out.
    """
    numbers = torch.arange(steps.shape[1], device=steps.device)
    steps.masked_fill_((numbers > best.unsqueeze(1)).unsqueeze(2), 0)  # some may not be finite
    size = torch.linalg.vector_norm(steps, dim=2)
    size = size.masked_fill_(size == 0, 1)
    ratio = size.unsqueeze(2) / size.unsqueeze(1)
    later = (numbers[:-1] >= best.unsqueeze(1)).unsqueeze(2)
    lower = (system * ratio[:, :-1, :-1]).masked_fill_(later, 0)
    right = (products * ratio.mT[:, :-1]).masked_fill_(later, 0)
    weights = torch.linalg.solve_triangular(lower.mT, right, upper=True, unitriangular=True)
    return steps.div_(size.unsqueeze(2)), weights.masked_fill_(void.unsqueeze(2), 0)


class Solution(NamedTuple):
    """The result of a solve, sample by sample.

    Attributes:
        z: the iterate of each sample with the smallest residual, ``(B, *state)``. That may be the
            start; a solve on a graph, or with a tangent, returns the first step instead, since the
            start does not depend on the map.
        residual: residual of the best iterate, ``(B,)``; ``inf`` if no evaluation was finite.
        iterations: steps until the sample stopped, ``(B,)``.
        evaluations: evaluations of ``f`` until the sample stopped, ``(B,)``.
        converged: whether ``residual < tol``, ``(B,)``.
        diverged: whether an evaluation was not finite, which stopped the sample, ``(B,)``. A
            sample that neither converged nor diverged has spent its budget.
        trace: residual at each evaluation, ``(evaluations, B)``, ``nan`` after a sample has
            stopped; ``None`` unless ``record_trace`` is set.
        inverse: an estimate of :math:`(I - J)^{-1}` at ``z``; ``None`` unless the solver keeps it
            (:class:`phantomgrad.Broyden` with ``keep_inverse=True``).
        tol: the tolerance; 0 for a solve that has none (:class:`phantomgrad.Steps`), ``None`` if
            the solver does not say.
    """

    z: Tensor
    residual: Tensor
    iterations: Tensor
    evaluations: Tensor
    converged: Tensor
    diverged: Tensor
    trace: Tensor | None = None
    inverse: Inverse | None = None
    tol: float | None = None


class LinearSolver(ABC):
    """Solves linear equations, such as those of adjoints, sample by sample."""

    @abstractmethod
    def solve_linear(self, op: Map, v: Tensor) -> Solution:
        """Solve ``u = op(u) + v`` for ``u``; ``op`` is linear and ``v`` is ``(B, *state)``."""

    def for_dtype(self, dtype: torch.dtype) -> Self:
        """Return a solver whose tolerance a map computed in ``dtype`` can reach."""
        return self

    def relative_residual(self, solution: Solution) -> Tensor:
        """Return the residuals of ``solution`` relative to the size of its states, ``(B,)``."""
        return solution.residual


class Solver(LinearSolver):
    """Finds fixed points of a map, sample by sample.

    A method that searches within a tolerance extends
    :class:`phantomgrad.solvers.IterativeSolver`, which needs only its steps.

    In float32, the norm of a state must lie between about 1e-17 and 1e18, since its square would
    under- or overflow. The same holds of cotangents in adjoint solves: scale tiny losses up.
    """

    differentiable: ClassVar[bool] = False
    """Whether autograd can record ``solve``, as ``BackpropThroughSolver`` needs."""

    fixed_length: ClassVar[bool] = False
    """Whether the number of steps is part of the model, as in :class:`phantomgrad.Steps`."""

    @abstractmethod
    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Search for the equilibrium of ``f``, starting from ``z0``.

        Args:
            f: maps ``(B, *state)`` to a new tensor of the same shape, in any dtype.
            z0: starting states, ``(B, *state)``, in floating point.
        """

    def solve_linear(self, op: Map, v: Tensor) -> Solution:
        """Solve ``u = op(u) + v`` from ``u = v``."""
        return self.solve(lambda u: op(u) + v, v)


def check_start(z0: Tensor) -> None:
    """Raise unless ``z0`` is a batch of floating-point states."""
    if z0.dim() == 0:
        raise ValueError("z0 must have a batch dimension, got a scalar tensor")
    if not z0.is_floating_point():
        raise ValueError(f"z0 must be a floating-point tensor, got {z0.dtype}")


def raised_tolerance(solver: _S, dtype: torch.dtype) -> _S:
    """Return ``solver`` with a relative ``tol`` that a map computed in ``dtype`` can reach."""
    if dtype not in (torch.bfloat16, torch.float16):
        return solver
    floor = torch.finfo(dtype).eps / 2  # what rounding leaves: half a unit in the last digit
    if not 0 < solver.tol < floor:
        return solver
    warnings.warn(
        f"f is computed in {dtype}, where relative residuals stay near {floor:.1g}: smaller "
        f"tolerances are raised to it, {type(solver).__name__} has tol={solver.tol:g}; set a "
        "larger one to silence this warning",
        stacklevel=4,
    )
    return replace(solver, tol=floor)
