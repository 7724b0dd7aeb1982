"""The contract of solvers, their result, and how they lay out and evaluate states."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from phantomgrad.precision import full_precision

Map = Callable[[Tensor], Tensor]
"""A map of a batch of states, ``(B, *state)``, to a new tensor of the same shape.

It must not modify its argument, which the solver still needs.
"""

_S = TypeVar("_S", bound=Any)


class ParametricMap(ABC):
    """A :data:`Map` that knows the differentiable tensors it uses, as that of a layer does."""

    @abstractmethod
    def __call__(self, z: Tensor) -> Tensor:
        """Return the next state."""

    @property
    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """The tensors."""

    @abstractmethod
    def with_tensors(self, tensors: list[Tensor]) -> Map:
        """Return the map with others in their place, callable at any time and in any thread."""


class Inverse(NamedTuple):
    r"""An estimate of :math:`(I - J)^{-1}` that a solve leaves, one matrix for each sample.

    :math:`I + S_+^\top W^\top S`. The rows of :math:`S_+` are the k + 1 steps of the solve, scaled
    to unit length; S has the first k of them.

    Attributes:
        steps: :math:`S_+`, unit vectors, ``(B, k + 1, D)``.
        weights: W, ``(B, k, k + 1)``.
        layout: two functions, of states to ``(B, D)`` and back.
    """

    steps: Tensor
    weights: Tensor
    layout: tuple[Map, Map]

    def transposed(self, v: Tensor) -> Tensor:
        r"""Return the transpose times ``v``, an estimate of :math:`(I - J^\top)^{-1} v`."""
        flatten, restore = self.layout
        flat = flatten(v.to(self.steps.dtype))
        with full_precision(v.device):
            # The long operand goes last, as in Broyden's method.
            products = torch.bmm(flat.unsqueeze(1), self.steps.mT)  # (B, 1, k + 1)
            coefficients = torch.bmm(products, self.weights.mT)
            added = torch.bmm(coefficients, self.steps[:, :-1])
        return restore(flat + added.squeeze(1)).to(v.dtype)


class Solution(NamedTuple):
    r"""The result of a solve, sample by sample.

    Attributes:
        z: the best iterate of each sample, that with the smallest residual, ``(B, *state)``. It may
            be the start. A solve that autograd records then returns the first step instead, since
            the start has no gradient.
        residual: residual of the best iterate, ``(B,)``; ``inf`` if no evaluation was finite.
        evaluations: evaluations of ``f`` until the sample stopped, ``(B,)``.
        converged: whether ``residual < tol``, ``(B,)``.
        diverged: whether an evaluation was not finite, which stopped the sample, ``(B,)``. A
            sample that neither converged nor diverged has spent its budget.
        trace: residual at each evaluation, ``(evaluations, B)``, ``nan`` after a sample has
            stopped; ``None`` unless ``record_trace`` is set.
        inverse: an estimate of :math:`(I - J)^{-1}` at ``z``; ``None`` unless the solver keeps it
            (:class:`phantomgrad.Broyden` with ``keep_inverse=True``).
        tol: the tolerance; 0 for :class:`phantomgrad.Steps`, which has none, and ``None`` for a
            solver that does not say.
        distance: :math:`\|z - z_0\|` from the start, ``(B,)``, which is small in a model that
            collapses onto it; ``None`` unless a :class:`phantomgrad.DEQ` solved.
    """

    z: Tensor
    residual: Tensor
    evaluations: Tensor
    converged: Tensor
    diverged: Tensor
    trace: Tensor | None = None
    inverse: Inverse | None = None
    tol: float | None = None
    distance: Tensor | None = None

    def summary(self) -> dict[str, float]:
        """Return numbers for a log; on an accelerator this waits for queued work.

        ``samples``: their number. ``converged`` and ``diverged``: shares of them, from 0 to 1.
        ``evaluations``: the mean. ``residual``: the largest.
        """
        parts = {
            "converged": self.converged.double().mean(),
            "diverged": self.diverged.double().mean(),
            "evaluations": self.evaluations.double().mean(),
            "residual": self.residual.max(),
        }
        return {"samples": len(self.residual)} | {k: float(v) for k, v in parts.items()}

    def __repr__(self) -> str:
        return f"Solution({len(self.residual)} samples on {self.residual.device}, tol={self.tol})"


class LinearSolver(ABC):
    """Solves linear equations sample by sample, such as the adjoint equation of a gradient."""

    @abstractmethod
    def solve_linear(self, op: Map, v: Tensor) -> Solution:
        """Solve ``u = op(u) + v`` for ``u``; ``op`` is linear and ``v`` is ``(B, *state)``."""

    def for_dtype(self, dtype: torch.dtype) -> Self:
        """Return this solver with a tolerance that a map computed in ``dtype`` can reach."""
        return self

    def relative_residual(self, solution: Solution) -> Tensor:
        """Return the residuals of ``solution`` relative to the size of its states, ``(B,)``."""
        return solution.residual


class Solver(LinearSolver):
    """Finds fixed points of a map, sample by sample.

    A method that iterates until a tolerance is met extends :class:`IterativeSolver`, which needs
    only its steps. In float32, the norm of a state must lie between about 1e-17 and 1e18, since its
    square would under- or overflow.
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

    def for_training(self) -> "Solver":
        """Return the solver of one pass of a layer in training mode."""
        return self

    def solve_linear(self, op: Map, v: Tensor) -> Solution:
        """Solve ``u = op(u) + v`` from ``u = v``."""
        return self.solve(lambda u: op(u) + v, v)


def flat(x: Tensor) -> Tensor:
    """Return a batch of states as ``(B, D)``; a state may be a scalar."""
    return x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)


def per_sample(values: Tensor, states: Tensor) -> Tensor:
    """Return ``values``, ``(B,)``, in a shape that broadcasts over ``states``, ``(B, *state)``."""
    return values.view(-1, *[1] * (states.dim() - 1))


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``x.to(dtype)``, which takes a microsecond even where there is nothing to do."""
    return x if x.dtype == dtype else x.to(dtype)


def layout(z0: Tensor) -> tuple[Map, Map]:
    """Return two functions, of states like ``z0`` to ``(B, D)`` and back.

    Images that are channels last in memory stay so, which saves two transpositions at every
    evaluation.
    """
    if z0.dim() == 2:
        return lambda z: z, lambda z: z.view_as(z)  # f must not mark the solver's own tensor
    shape = z0.shape[1:]
    if z0.dim() != 4 or z0.is_contiguous() or not z0.permute(0, 2, 3, 1).is_contiguous():
        return flat, lambda z: z.view(z.shape[0], *shape)
    c, h, w = shape
    return (
        lambda z: flat(z.permute(0, 2, 3, 1)),
        lambda z: z.view(z.shape[0], h, w, c).permute(0, 3, 1, 2),
    )


def evaluate(f: Map, z: Tensor) -> Tensor:
    """Return ``f(z)``; raise unless it is a tensor like ``z``, which ``f`` has not modified."""
    versioned = not torch.compiler.is_compiling() and not z.is_inference()
    version = z._version if versioned else None
    fz = f(z)
    if not isinstance(fz, Tensor):
        raise TypeError(
            f"f must return one tensor, got {type(fz).__name__}: f is a map of the state, such as "
            "lambda z: layer.cell(z, x), and returns only the next state"
        )
    if fz.shape != z.shape:
        raise ValueError(
            f"f must keep the shape of the state: it maps {tuple(z.shape)} to {tuple(fz.shape)}"
        )
    if fz.device != z.device:
        raise ValueError(f"f must keep the device: z is on {z.device}, f(z) on {fz.device}")
    if versioned and z._version != version:
        raise ValueError(
            "f must not modify its argument, nor return the same memory twice: write z = z + x "
            "instead of z += x, and return a new tensor each time"
        )
    return fz


def check_start(z0: Tensor) -> None:
    """Raise unless ``z0`` is a batch of floating-point states."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise RuntimeError("torch.jit.trace would freeze the number of steps: use torch.export")
    if z0.dim() == 0 or z0.numel() == 0:
        shape = tuple(z0.shape)
        raise ValueError(f"z0 must be a batch of at least one state, got the shape {shape}")
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
