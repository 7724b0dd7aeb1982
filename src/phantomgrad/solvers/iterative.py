"""Methods that search until a tolerance is met, and what they share: evaluation and residuals."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_choice, check_not_negative
from phantomgrad.solvers.base import Inverse, Solution, Solver, check_start, raised_tolerance
from phantomgrad.solvers.context import (
    ActivityFlag,
    differentiating,
    full_precision,
    has_derivative,
    may_read,
    tangents,
    vmapped,
)
from phantomgrad.solvers.maps import Map, evaluate, flat, layout


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

    def inverse(self, z: Tensor, solution: Solution) -> tuple[Tensor, Tensor] | None:
        """Return the tensors of an :class:`Inverse`, after the evaluation of ``z``, if kept."""
        return None


@dataclass(frozen=True, kw_only=True)
class IterativeSolver(Solver):
    r"""The base of methods that iterate until a tolerance is met, for each sample of a batch.

    A method only proposes the next iterate, in the :class:`Iteration` that :meth:`start` returns.
    All methods share one residual, that of the undamped map,

    .. math:: r(z) = \|f(z) - z\| / (\|f(z)\| + a) \quad\text{or}\quad \|f(z) - z\|,

    so that ``tol`` has the same meaning for all of them. With :math:`a = \text{atol} /
    \text{tol}` a sample has converged when :math:`\|f(z) - z\| < \text{atol} + \text{tol}\,
    \|f(z)\|`. ``a`` also includes :math:`\text{eps}/64 \, \max(\|z_0\|, \|f(z_0)\|)`. Without
    it a sample whose equilibrium is zero could never converge, since its relative residual need not
    fall. A float32 start more than about 1e8 times larger than the equilibrium makes residuals look
    too small. Samples are independent: one that has converged is frozen, and one that becomes
    non-finite stops with its best finite iterate and affects no other. Failure to converge is
    reported in the :class:`Solution`; only misuse raises.

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
        check_not_negative("tol", self.tol)
        check_choice("stop", self.stop, ("relative", "absolute"))
        check_choice("norm", self.norm, ("l2", "rms", "max"))
        check_not_negative("atol", self.atol)
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
        recorded = self.differentiable and differentiating()
        with torch.set_grad_enabled(recorded and torch.is_grad_enabled()), tangents(recorded):
            return self._solve(f, z0)

    def _solve(self, f: Map, z0: Tensor) -> Solution:
        # Half-precision states are iterated in float32; f receives them in their own dtype.
        flatten, restore = layout(z0)
        z = flatten(z0.to(torch.promote_types(z0.dtype, torch.float32)))
        # The first evaluation is checked; on small states, checks of all would count.
        call: Map = partial(evaluate, f)
        if vmapped():  # the buffers of a method must have the batches that f closes over
            first = call(z0)
            z, call = z + torch.zeros_like(flatten(first)), lambda _: first
        state, iteration, recorded = SolveState(self, z), self.start(z), torch.is_grad_enabled()
        for evaluation in range(self.max_evaluations):
            if recorded:
                z = state.freeze(z)
            fz = flatten(call(restore(z).to(z0.dtype)).to(z.dtype))
            call = f
            g = iteration.difference(z, fz)
            state.update(z, fz, g, iteration.rejected())
            last = evaluation + 1 == self.max_evaluations or state.finished()
            opening = evaluation == 0 and self.differentiable and has_derivative(fz)
            if last and not opening:
                break
            with full_precision(z.device):
                z = iteration.advance(z, fz, g)
            if opening:
                state.first_step = z
            if last:
                break
            del fz, g  # free them before the next evaluation
        kept = iteration.inverse(z, solution := state.solution())
        inverse = Inverse(*kept, (flatten, restore)) if kept else None
        return solution._replace(z=restore(solution.z).to(z0.dtype), inverse=inverse)

    def residual(self, g: Tensor, fz: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
        """Return the residuals for ``g = f(z) - z`` and what they are relative to, ``(B,)`` each.

        ``zero`` is a, see :meth:`zero`. Where the second is infinite, the first means nothing.
        """
        size = self.size(g)
        if self.stop == "absolute":
            return size, size
        whole = self.size(fz).add_(zero)
        return size / whole, whole

    def for_dtype(self, dtype: torch.dtype) -> Self:
        """Return a solver whose relative tolerance a map computed in ``dtype`` can reach."""
        return self if self.stop == "absolute" else raised_tolerance(self, dtype)

    def relative_residual(self, solution: Solution) -> Tensor:
        """Return the residuals of ``solution`` relative to the size of its states, ``(B,)``."""
        if self.stop == "relative":
            return solution.residual
        size = self.size(solution.z)
        return solution.residual / size.clamp_min(torch.finfo(size.dtype).tiny)

    def zero(self, z0: Tensor, fz0: Tensor) -> Tensor:
        """Return the size below which a state counts as zero, ``(B,)``, from the first step."""
        if self.stop == "absolute":
            return z0.new_zeros(z0.shape[0])
        numbers = torch.finfo(z0.dtype)
        # A part of the last digit, so that it rounds away where the state keeps its size.
        rounding = torch.maximum(self.size(z0), self.size(fz0)).nan_to_num_(posinf=0)
        rounding = rounding.mul_(numbers.eps / 64).clamp_min_(numbers.tiny)
        return rounding.add_(self.atol / self.tol) if self.atol else rounding

    def size(self, x: Tensor) -> Tensor:
        """Return the norm of each sample of ``x``, ``(B,)``."""
        x = flat(x)
        if not x.shape[1]:
            return x.new_zeros(len(x))
        if self.norm == "max":  # vector_norm(ord=inf) is thirty times slower on the CPU
            return torch.maximum(x.amax(dim=1), -x.amin(dim=1))
        norm: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norm / math.sqrt(x.shape[1]) if self.norm == "rms" else norm


class SolveState:
    """Best iterate, residual and counts of every sample during one solve."""

    def __init__(self, solver: IterativeSolver, z0: Tensor) -> None:
        batch = z0.shape[0]
        self._solver = solver
        self._start = self._best = z0
        self._best_residual = z0.new_full((batch,), torch.inf)
        self._zero: Tensor | None = None
        self.first_step: Tensor | None = None  # of a recorded solve
        self._at_start = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._count = 0
        self._evaluations = torch.zeros(batch, dtype=torch.long, device=z0.device)
        self._rejected: Tensor | int = 0
        self._active = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._may_read = may_read(z0.device)
        self._none_stopped = self._may_read and batch > 0
        self._flag = ActivityFlag(z0.device)
        self._trace: list[Tensor] = []

    def update(self, z: Tensor, fz: Tensor, g: Tensor, rejected: Tensor | int) -> Tensor:
        """Take one evaluation into account; return which samples have a new best iterate, ``(B,)``.

        Only active samples can change.
        """
        if g.requires_grad:
            g, fz = g.detach(), fz.detach()  # only z stays on a graph
        if self._zero is None:
            self._zero = self._solver.zero(z.detach(), fz)
        residual, whole = self._solver.residual(g, fz, self._zero)
        low, high = self._range(residual)
        if not low > 0:
            # |f(z)| may overflow while |g| does not: a ratio of zero is then not convergence.
            residual.masked_fill_(whole == torch.inf, torch.inf)
            low, high = self._range(residual)
        if self._solver.record_trace:
            self._trace.append(residual.masked_fill(~self._active, torch.nan))
        if isinstance(rejected, Tensor):
            self._rejected = torch.where(self._active, rejected, self._rejected)
        self._count += 1
        improved = residual < self._best_residual
        if low >= self._solver.tol and high < math.inf:
            self._keep_best(z, residual, improved)
            return improved
        self._none_stopped = False
        improved = self._active & improved
        self._keep_best(z, residual, improved)
        self._evaluations = torch.where(self._active, self._count, self._evaluations)
        # False for nan and inf as well: a sample that has become non-finite stays stopped.
        self._active = self._active & (residual >= self._solver.tol) & (residual < torch.inf)
        return improved

    def _range(self, residual: Tensor) -> tuple[float, float]:
        """Return the smallest and largest residual; ``nan`` if one is, or if not all are active."""
        if not self._none_stopped:
            return math.nan, math.nan
        low, high = residual.aminmax()
        return low.item(), high.item()

    def freeze(self, z: Tensor) -> Tensor:
        """Return ``z`` with the best iterate in place of samples that have stopped.

        In the backward pass, 0 times the infinite derivative of a dropped sample would be nan.
        """
        if self._none_stopped:
            return z  # not a copy, which the graph would keep
        return torch.where(self._active.unsqueeze(1), z, self._best)

    def _keep_best(self, z: Tensor, residual: Tensor, improved: Tensor) -> None:
        if self.first_step is not None:
            self._at_start = self._at_start & ~improved
        if self._may_read:
            if bool(improved.all()):
                self._best, self._best_residual = z, residual
                return
            if not bool(improved.any()):
                return
        self._best = torch.where(improved.unsqueeze(1), z, self._best)
        self._best_residual = torch.where(improved, residual, self._best_residual)

    def finished(self) -> bool:
        """Return whether every sample has stopped, on CUDA with the lag of the flag."""
        if self._none_stopped or (self._solver.tol == 0 and not self._may_read):
            return False  # with tol=0 no sample can converge: do not wait for the device
        return not self._flag.any(self._active)

    def solution(self) -> Solution:
        """Return the result, with flat states."""
        if self._none_stopped:
            self._evaluations.fill_(self._count)
        best = self._best.clone() if self._best is self._start else self._best
        if self.first_step is not None:
            best = torch.where(self._at_start.unsqueeze(1), self.first_step, best)
        converged = self._best_residual < self._solver.tol
        return Solution(
            z=best,
            residual=self._best_residual,
            iterations=self._evaluations - 1 - self._rejected,
            evaluations=self._evaluations,
            converged=converged,
            diverged=~(self._active | converged),
            trace=torch.stack(self._trace) if self._trace else None,
            tol=self._solver.tol,
        )
