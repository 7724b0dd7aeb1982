"""The base of methods that iterate until a tolerance is met, and the loop that they share."""

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_choice, check_not_negative
from phantomgrad.context import cheap_to_read, readable, recording, set_recording
from phantomgrad.precision import full_precision, is_lowered
from phantomgrad.solvers.base import (
    Map,
    Solution,
    Solver,
    cast,
    check_start,
    evaluate,
    flat,
    layout,
    raised_tolerance,
)

Advance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``advance(z, f(z), g)`` returns the next iterate, in a new tensor; ``g = f(z) - z``.

All are flat, ``(B, D)``. It is called at most once for each evaluation, in their order.
"""

_LEAST = math.ulp(0.0)  # the smallest number above zero
_FEW = 64  # up to so many numbers, Python compares faster than torch


@dataclass(frozen=True, kw_only=True)
class IterativeSolver(Solver):
    r"""The base of methods that iterate until a tolerance is met, for each sample of a batch.

    A method only proposes the next iterate, by the function that :meth:`start` returns. All methods
    share one residual, that of the undamped map,

    .. math:: r(z) = \|f(z) - z\| / (\|f(z)\| + a) \quad\text{or}\quad \|f(z) - z\|,

    so that ``tol`` has the same meaning for all of them. A sample has converged when its residual
    is below ``tol``.

    Samples are independent: one that has converged is frozen, and one that becomes non-finite
    stops with its best finite iterate and affects no other. Failure to converge is reported in the
    :class:`Solution`; only misuse raises.

    :math:`a = \text{eps}/64 \, \max(\|z_0\|, \|f(z_0)\|)` is far below the last digit of the first
    step, so it changes no residual of ordinary size. It lets a sample converge whose equilibrium is
    zero. Residuals are too small only if a float32 start is over 1e8 times the equilibrium.

    Args:
        max_evaluations: budget of evaluations of ``f``, including the one at the start.
        tol: a sample has converged when its residual is below ``tol``. With 0 the whole budget is
            spent, on CUDA without ever synchronising with the device.
        stop: ``"relative"`` or ``"absolute"`` residuals.
        norm: ``"l2"``; ``"rms"``, the root mean square :math:`\|x\|_2 / \sqrt{D}` over the D
            entries of a sample; or ``"max"``, the largest absolute entry.
        record_trace: return the residual of every evaluation.
    """

    max_evaluations: int = 40
    tol: float = 1e-3
    stop: Literal["relative", "absolute"] = "relative"
    norm: Literal["l2", "rms", "max"] = "l2"
    record_trace: bool = False

    def __post_init__(self) -> None:
        check_at_least("max_evaluations", self.max_evaluations, 1)
        check_not_negative("tol", self.tol)
        check_choice("stop", self.stop, ("relative", "absolute"))
        check_choice("norm", self.norm, ("l2", "rms", "max"))

    @abstractmethod
    def start(self, z0: Tensor) -> Advance:
        """Return the steps of a new solve from ``z0``, flat states ``(B, D)``."""

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Return the best iterates within the budget; see :meth:`Solver.solve`."""
        with set_recording(self.differentiable and recording()):
            return search(self, f, z0)

    def residual(self, g: Tensor, fz: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
        """Return the residuals for ``g = f(z) - z`` and their denominators, ``(B,)`` each.

        ``zero`` is a, see :meth:`zero`. A residual with an infinite denominator means nothing.
        """
        size = self.size(g)
        if self.stop == "absolute":
            return size, size
        whole = self.size(fz).add_(zero)
        return size / whole, whole

    def zero(self, z0: Tensor, fz0: Tensor) -> Tensor:
        """Return a, the size below which a state counts as zero, ``(B,)``, from the first step."""
        if self.stop == "absolute":
            return z0.new_zeros(z0.shape[0])
        numbers = torch.finfo(z0.dtype)
        # A part of the last digit, so that it rounds away where the state keeps its size.
        rounding = torch.maximum(self.size(z0), self.size(fz0)).nan_to_num_(posinf=0)
        return rounding.mul_(numbers.eps / 64).clamp_min_(numbers.tiny)

    def size(self, x: Tensor) -> Tensor:
        """Return the norm of each sample of ``x``, flat states ``(B, D)``."""
        if self.norm == "max":  # vector_norm(ord=inf) is thirty times slower on the CPU
            return torch.maximum(x.amax(dim=1), -x.amin(dim=1))
        norm: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norm / math.sqrt(x.shape[1]) if self.norm == "rms" else norm

    def for_dtype(self, dtype: torch.dtype) -> Self:
        """Return a solver whose relative tolerance a map computed in ``dtype`` can reach."""
        return self if self.stop == "absolute" else raised_tolerance(self, dtype)

    def relative_residual(self, solution: Solution) -> Tensor:
        """Return the residuals of ``solution`` relative to the size of its states, ``(B,)``."""
        if self.stop == "relative":
            return solution.residual
        size = self.size(flat(solution.z))
        return solution.residual / size.clamp_min(torch.finfo(size.dtype).tiny)


def search(
    solver: IterativeSolver, f: Map, z0: Tensor, start: Callable[[Tensor], Advance] | None = None
) -> Solution:
    """Iterate from ``z0`` until all samples stop, recorded if gradients are enabled.

    ``start`` is by default that of the ``solver``.
    """
    check_start(z0)
    # Half-precision states are iterated in float32; f receives them in their own dtype.
    flatten, restore = layout(z0)
    z = flatten(z0.to(torch.promote_types(z0.dtype, torch.float32)))
    fz = evaluate(f, cast(restore(z), z0.dtype))
    solver = solver.for_dtype(fz.dtype)
    if not (torch.compiler.is_compiling() or (readable(z) and readable(fz))):
        z = z + torch.zeros_like(flatten(fz), dtype=z.dtype)  # in a vmap, with the batches of f(z)
    precise = partial(full_precision, z.device) if is_lowered(z.device) else nullcontext
    recorded, progress, advance = recording(), Progress(solver, z), (start or solver.start)(z)
    for count in range(1, solver.max_evaluations + 1):
        fz = flatten(cast(fz, z.dtype))
        if fz.requires_grad and not recorded:
            fz = fz.detach()  # of a cell that enables gradients itself
        g = fz - z
        progress.update(z, fz, g)
        last = count == solver.max_evaluations or progress.finished()
        opening = count == 1 and fz.requires_grad
        if last and not opening:
            break
        with precise():
            z = advance(z, fz, g)
        if recorded:
            z = progress.on_graph(z, opening)
        if last:
            break
        del fz, g  # free them before the next evaluation
        # The first two are checked; on small states, checks of all would count.
        fz = (partial(evaluate, f) if count == 1 else f)(cast(restore(z), z0.dtype))  # noqa: F841
    solution = progress.solution()
    return solution._replace(z=restore(solution.z).to(z0.dtype))


class Progress:
    """Best iterate, residual and counts of every sample during one solve."""

    def __init__(self, solver: IterativeSolver, z0: Tensor) -> None:
        batch = z0.shape[0]  # not len(), which an export would take for a constant
        self._solver = solver
        self._start = self._best = z0
        self._best_residual = z0.new_full((batch,), torch.inf)
        self._zero: Tensor | None = None
        self._count = 0
        self._evaluations = torch.zeros(batch, dtype=torch.long, device=z0.device)
        self._active = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._cheap = cheap_to_read(z0)
        # While Python sees that every sample is active, masks can be left out; on accelerators it
        # never looks.
        self._none_stopped = self._cheap
        self._any = AnyActive(z0)
        self._trace: list[Tensor] = []

    def update(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        """Take one evaluation into account; return which samples have a new best iterate, ``(B,)``.

        Only active samples can change.
        """
        if g.requires_grad:
            g, fz = g.detach(), fz.detach()  # only z stays on a graph
        if self._zero is None:
            self._zero = self._solver.zero(z.detach(), fz)
        residual, whole = self._solver.residual(g, fz, self._zero)
        self._count += 1
        if self._none_stopped:
            self._none_stopped = all_in(residual, self._solver.tol or _LEAST, math.inf)
        if self._none_stopped:
            improved = residual < self._best_residual
        else:
            # |f(z)| may overflow while |g| does not: a ratio of zero is then not convergence.
            residual = residual.masked_fill_(whole == torch.inf, torch.inf)
            improved = self._active & (residual < self._best_residual)
        if self._solver.record_trace:
            self._trace.append(residual.masked_fill(~self._active, torch.nan))
        self._keep_best(z, residual, improved)
        if not self._none_stopped:
            self._stop(residual)
        return improved

    def _keep_best(self, z: Tensor, residual: Tensor, improved: Tensor) -> None:
        if self._cheap and _all(improved):
            self._best, self._best_residual = z, residual
            return
        self._best = torch.where(improved.unsqueeze(1), z, self._best)
        self._best_residual = torch.where(improved, residual, self._best_residual)

    def _stop(self, residual: Tensor) -> None:
        """Stop samples that have converged or become non-finite, and count the others."""
        self._evaluations = torch.where(self._active, self._count, self._evaluations)
        # False for nan and inf as well: a sample that has become non-finite stays stopped.
        self._active = self._active & (residual >= self._solver.tol) & (residual < torch.inf)

    def on_graph(self, z: Tensor, opening: bool) -> Tensor:
        """Return the next iterate of a recorded solve, the best one where a sample has stopped.

        In the backward pass, 0 times the infinite derivative of a dropped sample would be nan. The
        result of the ``opening`` step takes the place of the start, which has no graph.
        """
        if opening:
            self._best = z
        if self._none_stopped:
            return z  # not a copy, which the graph would keep
        return torch.where(self._active.unsqueeze(1), z, self._best)

    def finished(self) -> bool:
        """Return whether every sample has stopped, on CUDA a few evaluations late."""
        if self._none_stopped or (self._solver.tol == 0 and not self._cheap):
            return False  # with tol=0 no sample can converge: do not wait for the device
        return not self._any(self._active)

    def solution(self) -> Solution:
        """Return the result, with flat states."""
        if self._none_stopped:
            self._evaluations.fill_(self._count)
        converged = self._best_residual < self._solver.tol
        return Solution(
            z=self._best.clone() if self._best is self._start else self._best,
            residual=self._best_residual,
            evaluations=self._evaluations,
            converged=converged,
            diverged=~(self._active | converged),
            trace=torch.stack(self._trace) if self._trace else None,
            tol=self._solver.tol,
        )


class AnyActive:
    """Answers "is any sample still active?", on CUDA with a lag and without blocking.

    On CUDA each call starts a copy to pinned memory and returns the value from ``lag`` calls
    earlier, so that the device always has work queued. A late answer changes no result, since
    stopped samples are frozen. Where nothing can be read the answer is always yes.
    """

    def __init__(self, z: Tensor, lag: int = 2) -> None:
        self._readable = readable(z)
        self._cuda = z.device.type == "cuda"
        self._lag = lag
        self._pending: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def __call__(self, active: Tensor) -> bool:
        """Return whether any entry of ``active`` is true, on CUDA as of ``lag`` calls earlier."""
        if not self._readable:
            return True
        if not self._cuda:
            return bool(active.any())
        host = torch.empty((), dtype=torch.bool, device="cpu", pin_memory=True)
        host.copy_(active.any(), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(active.device))
        self._pending.append((host, event))
        if len(self._pending) <= self._lag:
            return True
        answer, ready = self._pending.popleft()
        ready.synchronize()
        return bool(answer)


def all_in(x: Tensor, low: float, high: float) -> bool:
    """Return whether all entries of ``x``, on the CPU, are in [low, high); nan is not."""
    if x.numel() <= _FEW:
        return all(low <= value < high for value in x.flatten().tolist())
    least, largest = (bound.item() for bound in x.aminmax())  # nan if one is
    return low <= least and largest < high


def _all(x: Tensor) -> bool:
    return all(x.tolist()) if x.numel() <= _FEW else bool(x.all())


def damped(z: Tensor, fz: Tensor, damping: float) -> Tensor:
    r"""Return :math:`\lambda f(z) + (1 - \lambda) z`."""
    return fz if damping == 1.0 else torch.lerp(z, fz, damping)


def write(operator: Callable[..., Tensor], *arguments: Any, out: Tensor, direct: bool) -> Tensor:
    """Call ``operator`` with ``out=`` if ``direct``, else copy, as compilers and vmaps need it."""
    return operator(*arguments, out=out) if direct else out.copy_(operator(*arguments))
