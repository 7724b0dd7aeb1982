"""Methods that search until a tolerance is met, and what they share: evaluation and residuals."""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_choice, check_deviation
from phantomgrad.solvers.accelerators import full_precision
from phantomgrad.solvers.base import Solution, Solver, check_start
from phantomgrad.solvers.maps import Map, evaluate, flat, layout
from phantomgrad.solvers.state import SolveState


class Iteration(ABC):
    """One run of a method: its memory and the next iterate. States are flat, ``(B, D)``."""

    def difference(self, z: Tensor, fz: Tensor) -> Tensor:
        """Return ``g = f(z) - z``; a method that stores ``g`` writes it in place."""
        return fz - z

    @abstractmethod
    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        """Return the next iterate in a new tensor (``z`` may be the best iterate so far)."""

    def rejected(self) -> Tensor | int:
        """Return the number of trial points that a line search rejected, ``(B,)``."""
        return 0


@dataclass(frozen=True, kw_only=True)
class IterativeSolver(Solver):
    r"""Finds ``z`` with ``z = f(z)`` for each sample of a batch.

    A method only proposes the next iterate, in the :class:`Iteration` that :meth:`start` returns.
    The residual of an iterate is that of the undamped map for every method,

    .. math:: r(z) = \|f(z) - z\| / (\|f(z)\| + a) \quad\text{or}\quad \|f(z) - z\|,

    so that ``tol`` has the same meaning for all of them. With :math:`a = \text{atol} /
    \text{tol}` a sample has converged when :math:`\|f(z) - z\| < \text{atol} + \text{tol}\,
    \|f(z)\|`; in addition, a holds the rounding error of the start, without which no iteration
    would come closer to an equilibrium at zero. Samples are independent: one that has converged is
    frozen, and one that becomes non-finite stops with its best finite iterate and affects no other.
    Failure to converge is reported in the :class:`Solution`; only misuse raises.

    Args:
        max_evaluations: budget of evaluations of ``f``, including the one at the start.
        tol: a sample has converged when its residual is below ``tol``. With 0 the whole budget is
            spent, on CUDA without ever synchronising with the device.
        stop: ``"relative"`` or ``"absolute"`` residuals.
        atol: absolute part of a relative tolerance; needs ``tol`` above 0.
        norm: ``"l2"``; ``"rms"``, the root mean square :math:`\|x\|_2 / \sqrt{D}` over the D
            entries of a sample; or ``"max"``, the largest absolute entry.
        record_trace: return the residual of every evaluation.
    """

    max_evaluations: int = 40
    tol: float = 1e-3
    stop: Literal["relative", "absolute"] = "relative"
    norm: Literal["l2", "rms", "max"] = "l2"
    record_trace: bool = False
    atol: float = 0.0

    def __post_init__(self) -> None:
        check_at_least("max_evaluations", self.max_evaluations, 1)
        if not isinstance(self.tol, float | int):
            raise ValueError(f"tol must be a number, got {self.tol!r}")
        if not self.tol >= 0:
            raise ValueError(f"tol must not be negative, got {self.tol}")
        check_choice("stop", self.stop, ("relative", "absolute"))
        check_choice("norm", self.norm, ("l2", "rms", "max"))
        check_deviation("atol", self.atol)
        if self.atol and (self.stop == "absolute" or not self.tol):
            raise ValueError(
                f"atol is added to a relative tolerance, got atol={self.atol} with "
                f"stop={self.stop!r} and tol={self.tol}"
            )

    @abstractmethod
    def start(self, z0: Tensor) -> Iteration:
        """Return a new run of the method for flat states like ``z0``, ``(B, D)``."""

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Return the best iterates within the budget; see :meth:`Solver.solve`."""
        check_start(z0)
        with torch.set_grad_enabled(self.differentiable and torch.is_grad_enabled()):
            return self._solve(f, z0)

    def _solve(self, f: Map, z0: Tensor) -> Solution:
        # Half-precision states are iterated in float32; f receives them in their own dtype.
        flatten, restore = layout(z0)
        z = flatten(z0.to(torch.promote_types(z0.dtype, torch.float32)))
        state, iteration, recorded = SolveState(self, z), self.start(z), torch.is_grad_enabled()
        for evaluation in range(self.max_evaluations):
            if recorded:
                z = state.freeze(z)
            fz = flatten(evaluate(f, restore(z).to(z0.dtype)).to(z.dtype))
            g = iteration.difference(z, fz)
            state.update(z, fz, g, iteration.rejected())
            if evaluation == 0 and fz.requires_grad:
                state.first_step = iteration.advance(z, fz, g)
            if evaluation + 1 == self.max_evaluations or state.finished():
                break
            with full_precision(z.device):
                z = iteration.advance(z, fz, g)
            del fz, g  # free them before the next evaluation
        solution = state.solution()
        return solution._replace(z=restore(solution.z).to(z0.dtype))

    def residual(self, g: Tensor, fz: Tensor, zero: Tensor) -> Tensor:
        """Return the residuals, ``(B,)``, for ``g = f(z) - z``; ``zero`` is a, see :meth:`zero`."""
        size = self.size(g)
        if self.stop == "absolute":
            return size
        whole = self.size(fz).add_(zero)
        # A finite size over an infinite one is no convergence: |f(z)| overflows before |g|.
        return (size / whole).masked_fill_(whole == torch.inf, torch.inf)

    def reachable(self, dtype: torch.dtype) -> Self:
        """Return a solver whose relative tolerance a map computed in ``dtype`` can reach.

        Rounding to half precision leaves residuals of up to half a unit in the last digit.
        """
        if dtype not in (torch.bfloat16, torch.float16) or self.stop == "absolute":
            return self
        floor = torch.finfo(dtype).eps / 2
        if not 0 < self.tol < floor:
            return self
        warnings.warn(
            f"f is computed in {dtype}, with which relative residuals stay near {floor:.1g}: "
            f"tolerances below are raised to it, {type(self).__name__} has tol={self.tol:g}",
            stacklevel=3,
        )
        return replace(self, tol=floor)

    def relative_residual(self, solution: Solution) -> Tensor:
        """Return the residuals of ``solution`` relative to the size of its states, ``(B,)``."""
        if self.stop == "relative":
            return solution.residual
        size = self.size(solution.z)
        return solution.residual / size.clamp_min(torch.finfo(size.dtype).tiny)

    def zero(self, z0: Tensor, fz0: Tensor) -> Tensor:
        """Return the size below which a state counts as zero, ``(B,)``, from the first step."""
        if self.stop == "absolute":
            return z0.new_zeros(len(z0))
        numbers = torch.finfo(z0.dtype)
        # A part of the last digit, so that it rounds away where the state keeps its size.
        rounding = torch.maximum(self.size(z0), self.size(fz0)).nan_to_num_(posinf=0)
        rounding = rounding.mul_(numbers.eps / 64).clamp_min_(numbers.tiny)
        return rounding.add_(self.atol / self.tol) if self.atol else rounding

    def size(self, x: Tensor) -> Tensor:
        """Return the norm of each sample of ``x``, ``(B,)``."""
        x = flat(x)
        if self.norm == "max":  # vector_norm(ord=inf) is thirty times slower on the CPU
            return torch.maximum(x.amax(dim=1), -x.amin(dim=1))
        norm: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norm / math.sqrt(x.shape[1]) if self.norm == "rms" else norm
