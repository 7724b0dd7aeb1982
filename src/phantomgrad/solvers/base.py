"""The contract of solvers, their result, and the loop that all iterations share."""

import math
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from phantomgrad.checks import (
    cheap_to_read,
    check_at_least,
    check_choice,
    check_not_negative,
    readable,
    recording,
    set_recording,
)
from phantomgrad.precision import full_precision

Map = Callable[[Tensor], Tensor]
"""A map of a batch of states, ``(B, *state)``, to a new tensor of the same shape.

It must not modify its argument, which the solver still needs.
"""

Advance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``advance(z, f(z), g)`` returns the next iterate, in a new tensor; ``g = f(z) - z``.

All are flat, ``(B, D)``. It is called at most once for each evaluation, in their order.
"""

_S = TypeVar("_S", bound=Any)


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
            "residual": self.residual.max() if len(self.residual) else self.residual.sum(),
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


@dataclass(frozen=True, kw_only=True)
class IterativeSolver(Solver):
    r"""The base of methods that iterate until a tolerance is met, for each sample of a batch.

    A method only proposes the next iterate, by the function that :meth:`start` returns. All methods
    share one residual, that of the undamped map,

    .. math:: r(z) = \|f(z) - z\| / (\|f(z)\| + a) \quad\text{or}\quad \|f(z) - z\|,

    so that ``tol`` has the same meaning for all of them. A sample has converged when its residual
    is below ``tol``; with :math:`a = \text{atol} / \text{tol}` that is :math:`\|f(z) - z\| <
    \text{atol} + \text{tol}\, \|f(z)\|`.

    Samples are independent: one that has converged is frozen, and one that becomes non-finite
    stops with its best finite iterate and affects no other. Failure to converge is reported in the
    :class:`Solution`; only misuse raises.

    ``a`` also includes a part of the rounding error of the first step, :math:`\text{eps}/64 \,
    \max(\|z_0\|, \|f(z_0)\|)`: without it a sample whose equilibrium is zero would never
    converge. Residuals are too small only if a float32 start is over 1e8 times larger than the
    equilibrium.

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
    def start(self, z0: Tensor) -> Advance:
        """Return the steps of a new solve from ``z0``, flat states ``(B, D)``."""

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Return the best iterates within the budget; see :meth:`Solver.solve`."""
        check_start(z0)
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

    def for_dtype(self, dtype: torch.dtype) -> Self:
        """Return a solver whose relative tolerance a map computed in ``dtype`` can reach."""
        return self if self.stop == "absolute" else raised_tolerance(self, dtype)

    def relative_residual(self, solution: Solution) -> Tensor:
        """Return the residuals of ``solution`` relative to the size of its states, ``(B,)``."""
        if self.stop == "relative":
            return solution.residual
        size = self.size(solution.z)
        return solution.residual / size.clamp_min(torch.finfo(size.dtype).tiny)


def search(
    solver: IterativeSolver, f: Map, z0: Tensor, start: Callable[[Tensor], Advance] | None = None
) -> Solution:
    """Iterate from ``z0`` until all samples stop, recorded if gradients are enabled.

    ``start`` is by default that of the ``solver``.
    """
    # Half-precision states are iterated in float32; f receives them in their own dtype.
    flatten, restore = layout(z0)
    z = flatten(z0.to(torch.promote_types(z0.dtype, torch.float32)))
    fz = evaluate(f, restore(z).to(z0.dtype))
    solver = solver.for_dtype(fz.dtype)
    if not (torch.compiler.is_compiling() or readable(z)):
        z = z + torch.zeros_like(flatten(fz), dtype=z.dtype)  # in a vmap, with the batches of f(z)
    recorded, progress, advance = (
        recording(),
        Progress(solver, z),
        (start or solver.start)(z),
    )
    for count in range(1, solver.max_evaluations + 1):
        fz = flatten(fz.to(z.dtype))
        if fz.requires_grad and not recorded:
            fz = fz.detach()  # of a cell that enables gradients itself
        g = fz - z
        progress.update(z, fz, g)
        last = count == solver.max_evaluations or progress.finished()
        opening = count == 1 and fz.requires_grad
        if last and not opening:
            break
        with full_precision(z.device):
            z = advance(z, fz, g)
        if recorded:
            z = progress.on_graph(z, opening)
        if last:
            break
        del fz, g  # free them before the next evaluation
        # The first two are checked; on small states, checks of all would count.
        fz = (partial(evaluate, f) if count == 1 else f)(restore(z).to(z0.dtype))  # noqa: F841
    solution = progress.solution()
    return solution._replace(z=restore(solution.z).to(z0.dtype))


class Progress:
    """Best iterate, residual and counts of every sample during one solve."""

    def __init__(self, solver: IterativeSolver, z0: Tensor) -> None:
        batch = z0.shape[0]
        self._solver = solver
        self._start = self._best = z0
        self._best_residual = z0.new_full((batch,), torch.inf)
        self._zero: Tensor | None = None
        self._first_step: Tensor | None = None  # of a recorded solve
        self._at_start = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._count = 0
        self._evaluations = torch.zeros(batch, dtype=torch.long, device=z0.device)
        self._active = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._cheap = cheap_to_read(z0)
        self._none_stopped = self._cheap and batch > 0
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
        low, high = self._range(residual)
        if not low > 0:
            # |f(z)| may overflow while |g| does not: a ratio of zero is then not convergence.
            residual.masked_fill_(whole == torch.inf, torch.inf)
            low, high = self._range(residual)
        if self._solver.record_trace:
            self._trace.append(residual.masked_fill(~self._active, torch.nan))
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

    def on_graph(self, z: Tensor, opening: bool) -> Tensor:
        """Return the next iterate of a recorded solve, the best one where a sample has stopped.

        In the backward pass, 0 times the infinite derivative of a dropped sample would be nan. The
        result of the ``opening`` step takes the place of the start, which has no graph.
        """
        if opening:
            self._first_step = z
        if self._none_stopped:
            return z  # not a copy, which the graph would keep
        return torch.where(self._active.unsqueeze(1), z, self._best)

    def _keep_best(self, z: Tensor, residual: Tensor, improved: Tensor) -> None:
        if self._first_step is not None:
            self._at_start = self._at_start & ~improved
        if self._cheap:
            if bool(improved.all()):
                self._best, self._best_residual = z, residual
                return
            if not bool(improved.any()):
                return
        self._best = torch.where(improved.unsqueeze(1), z, self._best)
        self._best_residual = torch.where(improved, residual, self._best_residual)

    def finished(self) -> bool:
        """Return whether every sample has stopped, on CUDA a few evaluations late."""
        if self._none_stopped or (self._solver.tol == 0 and not self._cheap):
            return False  # with tol=0 no sample can converge: do not wait for the device
        return not self._any(self._active)

    def solution(self) -> Solution:
        """Return the result, with flat states."""
        if self._none_stopped:
            self._evaluations.fill_(self._count)
        best = self._best.clone() if self._best is self._start else self._best
        if self._first_step is not None:
            best = torch.where(self._at_start.unsqueeze(1), self._first_step, best)
        converged = self._best_residual < self._solver.tol
        return Solution(
            z=best,
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


def flat(x: Tensor) -> Tensor:
    """Return a batch of states as ``(B, D)``; a state may be a scalar."""
    return x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)


def per_sample(values: Tensor, states: Tensor) -> Tensor:
    """Return ``values``, ``(B,)``, in a shape that broadcasts over ``states``, ``(B, *state)``."""
    return values.view(-1, *[1] * (states.dim() - 1))


def layout(z0: Tensor) -> tuple[Map, Map]:
    """Return two functions, of states like ``z0`` to ``(B, D)`` and back.

    Images that are channels last in memory stay so, which saves two transpositions at every
    evaluation.
    """
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


def damped(z: Tensor, fz: Tensor, damping: float) -> Tensor:
    r"""Return :math:`\lambda f(z) + (1 - \lambda) z`."""
    return fz if damping == 1.0 else torch.lerp(z, fz, damping)


def write(operator: Callable[..., Tensor], *arguments: Any, out: Tensor, direct: bool) -> Tensor:
    """Call ``operator`` with ``out=`` if ``direct``, else copy, as compilers and vmaps need it."""
    return operator(*arguments, out=out) if direct else out.copy_(operator(*arguments))


def check_start(z0: Tensor) -> None:
    """Raise unless ``z0`` is a batch of floating-point states."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise RuntimeError("torch.jit.trace would freeze the number of steps: use torch.export")
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
