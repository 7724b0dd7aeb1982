"""What every fixed-point solver shares: the contract, the books, the stopping rule.

A method only proposes the next iterate. The base evaluates ``f``, measures every sample's
residual, keeps its best iterate, freezes it once it has converged, and decides when to stop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.solvers.arithmetic import own_arithmetic
from phantomgrad.solvers.flags import ActivityFlag

Map = Callable[[Tensor], Tensor]
"""A map of a batch of states ``(B, *state)`` to a fresh batch of the same shape.

It leaves its argument as it is: the iterates are read again.
"""


class Solution(NamedTuple):
    """What a solver found, sample by sample.

    Attributes:
        z: the best iterate of each sample, ``(B, *state)``; the start is a candidate too.
        residual: residual of ``z`` itself, ``(B,)``; ``inf`` where no evaluation was finite.
        iterations: steps taken until the sample stopped, ``(B,)``.
        evaluations: evaluations of ``f`` until the sample stopped, ``(B,)``.
        converged: whether ``residual < tol``, ``(B,)``.
        trace: the residual at each evaluation, ``(evaluations, B)``, ``nan`` once a sample has
            stopped; ``None`` unless asked for.
    """

    z: Tensor
    residual: Tensor
    iterations: Tensor
    evaluations: Tensor
    converged: Tensor
    trace: Tensor | None = None


class Iteration(ABC):
    """One run of a method: its memory, and the next iterate. States are flat, ``(B, D)``."""

    def difference(self, z: Tensor, fz: Tensor) -> Tensor:
        """Return ``g = f(z) - z``; a method that keeps ``g`` writes it where it keeps it."""
        return fz - z

    @abstractmethod
    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        """Return the next iterate in a tensor of its own (the books may still hold ``z``)."""

    def rejected(self) -> Tensor | int:
        """Return how many trial points were refused, per sample (a line search refuses some)."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    r"""Finds ``z`` with ``z = f(z)`` for each sample of a batch.

    The residual of an iterate is that of the undamped map, whatever the method does,

    .. math:: r(z) = \|f(z) - z\| / \|f(z)\| \quad\text{or}\quad \|f(z) - z\|,

    so that ``tol`` means the same everywhere. Samples are independent: a converged one is frozen,
    and one that turns non-finite stops with its best finite iterate and touches no other. Not
    converging is a value (see :class:`Solution`); only misuse raises.

    Args:
        max_evaluations: the budget, in evaluations of ``f``, the one at the start included.
        tol: a sample has converged when its residual is below it; 0 spends the whole budget, on
            CUDA without ever waiting for the device.
        stop: ``"relative"`` (the default) or ``"absolute"`` residuals.
        norm: ``"l2"``, or ``"max"`` for the largest absolute entry.
        record_trace: keep the residual of every evaluation.
    """

    max_evaluations: int = 40
    tol: float = 1e-3
    stop: Literal["relative", "absolute"] = "relative"
    norm: Literal["l2", "max"] = "l2"
    record_trace: bool = False

    differentiable: ClassVar[bool] = False
    """Whether ``solve`` can be recorded by autograd (needed by ``BackpropThroughSolver``)."""

    def __post_init__(self) -> None:
        check_at_least("max_evaluations", self.max_evaluations, 1)
        if not isinstance(self.tol, float | int):
            raise ValueError(f"tol must be a number, got {self.tol!r}")
        if not self.tol >= 0:
            raise ValueError(f"tol must not be negative, got {self.tol}")
        if self.stop not in ("relative", "absolute"):
            raise ValueError(f"stop must be 'relative' or 'absolute', got {self.stop!r}")
        if self.norm not in ("l2", "max"):
            raise ValueError(f"norm must be 'l2' or 'max', got {self.norm!r}")

    @abstractmethod
    def start(self, z0: Tensor) -> Iteration:
        """Return a fresh run of the method for flat states like ``z0``, ``(B, D)``."""

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Look for the equilibrium of ``f`` from ``z0``.

        Args:
            f: maps ``(B, *state)`` to the same shape, dtype aside, in a fresh tensor.
            z0: the starting states, ``(B, *state)``, with at least the batch dimension.

        Raises:
            ValueError: ``z0`` is no floating-point batch, or ``f`` changes shape, device or its
                own argument.
            TypeError: ``f`` returns no tensor.
        """
        _check_state(z0)
        with torch.set_grad_enabled(self.differentiable and torch.is_grad_enabled()):
            return self._solve(f, z0)

    def _solve(self, f: Map, z0: Tensor) -> Solution:
        # Half-precision states are iterated in float32: f sees its own dtype, the books do not.
        z = flat(z0.to(torch.promote_types(z0.dtype, torch.float32)))
        books, iteration, recorded = Books(self, z), self.start(z), torch.is_grad_enabled()
        for evaluation in range(self.max_evaluations):
            if recorded:
                z = books.held(z)
            state = z.view(z0.shape).to(z0.dtype)
            fz = _evaluated(f, state).to(z.dtype).reshape(z.shape)
            g = iteration.difference(z, fz)
            books.record(z, fz, g, iteration.rejected())
            if evaluation + 1 == self.max_evaluations or books.closed():
                break
            with own_arithmetic(z.device):
                z = iteration.advance(z, fz, g)
            del fz, g  # no need to keep them through the next evaluation
        return books.solution(z0)

    def residual(self, g: Tensor, fz: Tensor) -> Tensor:
        """Return the residual of each sample, ``(B,)``, from flat ``g = f(z) - z`` and ``f(z)``."""
        size = self.size(g)
        if self.stop == "absolute":
            return size
        tiny = torch.finfo(size.dtype).tiny
        # The share of g keeps the quotient finite where f(z) vanishes, and changes no other.
        return size / torch.add(self.size(fz), size, alpha=tiny).clamp_min(tiny)

    def size(self, x: Tensor) -> Tensor:
        """Return the norm of each sample of ``x``, ``(B,)``."""
        x = flat(x)
        if self.norm == "max":  # vector_norm(ord=inf) takes thirty times longer on the CPU
            return torch.maximum(x.amax(dim=1), -x.amin(dim=1))
        norm: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norm


class Books:
    """Best iterate, residual and counts of every sample during one solve."""

    def __init__(self, solver: Solver, z0: Tensor) -> None:
        batch = z0.shape[0]
        self._solver = solver
        self._start = self._best = z0
        self._best_residual = z0.new_full((batch,), torch.inf)
        self._count = 0
        self._evaluations = torch.zeros(batch, dtype=torch.long, device=z0.device)
        self._rejected: Tensor | int = 0
        self._active = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._flag = ActivityFlag(z0.device)
        self._trace: list[Tensor] = []

    def record(self, z: Tensor, fz: Tensor, g: Tensor, rejected: Tensor | int) -> None:
        """Enter one evaluation: only samples that are still active can change."""
        residual = self._solver.residual(g.detach(), fz.detach())  # a recorded solve keeps z alone
        if self._solver.record_trace:
            self._trace.append(residual.masked_fill(~self._active, torch.nan))
        if isinstance(rejected, Tensor):
            self._rejected = torch.where(self._active, rejected, self._rejected)
        self._keep(z, residual, self._active & (residual < self._best_residual))
        self._count += 1
        self._evaluations.masked_fill_(self._active, self._count)
        # False for nan and inf as well: a sample that left the finite numbers does not return.
        self._active = self._active & (residual >= self._solver.tol) & (residual < torch.inf)

    def held(self, z: Tensor) -> Tensor:
        """Return ``z``, and in its place what is kept of samples that have stopped.

        A recorded solve must not go on with what is no number: the books let nothing of it
        through, but in the backward pass 0 times such a derivative would be no number either. (A
        derivative that overflows before its value does is past help.)
        """
        if z.device.type == "cpu" and bool(self._active.all()):
            return z  # itself: a copy would be kept for the backward pass
        return torch.where(self._active.unsqueeze(1), z, self._best)

    def _keep(self, z: Tensor, residual: Tensor, improved: Tensor) -> None:
        """Keep what has improved; on the CPU, where looking is cheap, without needless copies."""
        if improved.device.type == "cpu":
            if bool(improved.all()):
                self._best, self._best_residual = z, residual
                return
            if not bool(improved.any()):
                return
        self._best = torch.where(improved.unsqueeze(1), z, self._best)
        self._best_residual = torch.where(improved, residual, self._best_residual)

    def closed(self) -> bool:
        """Return whether every sample has stopped (on an accelerator: had, a moment ago)."""
        if self._solver.tol == 0 and self._active.is_cuda:
            return False  # no sample converges: there is nothing to wait for
        return not self._flag.any(self._active)

    def solution(self, z0: Tensor) -> Solution:
        """Return the result in the shape and dtype of ``z0``."""
        best = self._best.clone() if self._best is self._start else self._best
        return Solution(
            z=best.view(z0.shape).to(z0.dtype),
            residual=self._best_residual,
            iterations=self._evaluations - 1 - self._rejected,
            evaluations=self._evaluations,
            converged=self._best_residual < self._solver.tol,
            trace=torch.stack(self._trace) if self._trace else None,
        )


def flat(x: Tensor) -> Tensor:
    """Return a batch of states as ``(B, D)``; a state may be a single number."""
    return x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)


def _check_state(z0: Tensor) -> None:
    if z0.dim() == 0:
        raise ValueError("z0 must have a batch dimension, got a tensor with no dimension")
    if not z0.is_floating_point():
        raise ValueError(f"z0 must be a floating-point tensor, got {z0.dtype}")


def _evaluated(f: Map, z: Tensor) -> Tensor:
    watched = not torch.compiler.is_compiling() and not z.is_inference()
    version = z._version if watched else None
    fz = f(z)
    if not isinstance(fz, Tensor):
        raise TypeError(f"f must return one tensor, got {type(fz).__name__}")
    if fz.shape != z.shape:
        raise ValueError(
            f"f must keep the shape of the state: it maps {tuple(z.shape)} to {tuple(fz.shape)}"
        )
    if fz.device != z.device:
        raise ValueError(f"f must keep the device: z is on {z.device}, f(z) on {fz.device}")
    if watched and z._version != version:
        raise ValueError("f must not change its argument in place: z = z + x, for one, not z += x")
    return fz
