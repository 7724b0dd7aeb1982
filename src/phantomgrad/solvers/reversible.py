"""The reversible solver: backpropagation through iterates that are not stored."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.linalg import vector_norm

from phantomgrad.checks import check_at_least, check_rate
from phantomgrad.solvers.base import Solution
from phantomgrad.solvers.context import transformed
from phantomgrad.solvers.iterative import Iteration, IterativeSolver, SolveState
from phantomgrad.solvers.maps import Map, Repeated, widest_dtype, working_dtype


@dataclass(frozen=True, kw_only=True)
class Reversible(IterativeSolver):
    r"""An iteration that can be inverted, for backpropagation through it in constant memory.

    .. math:: z_{t+1} = (1 - \beta) z_{t-1} + \beta f(z_t), \qquad z_{-1} = z_0

    (McCallum et al., 2025, where two states take turns: N steps are 2N evaluations, and one more
    for the residual of the last.) With :class:`phantomgrad.BackpropThroughSolver`, the gradient is
    that of the iteration. The backward pass starts from the last two iterates of each sample and
    reconstructs the others, :math:`z_{t-1} = (z_{t+1} - \beta f(z_t)) / (1 - \beta)`, with one
    recorded evaluation and one vector-Jacobian product for each.

    It converges where all eigenvalues j of the Jacobian satisfy :math:`|j| < 1` if real, for every
    :math:`\beta`, and :math:`|j| < (2 - \beta) / \beta` if imaginary. Unlike damped fixed-point
    iteration it does not converge for :math:`j \le -1`, and for real j it is never the faster one.

    Each reconstruction multiplies rounding errors by :math:`|1 - \beta|^{-1/2}` or more. So the
    iterates have more digits than ``f`` (float64, and float32 for half precision): with
    :math:`\beta = 1/2`, some 40 iterates of a float32 map are reconstructed bit for bit. A random
    projection of each iterate, one number per sample, is stored as well. Where a reconstruction
    differs from it by enough to change the gradient, the iterate is computed again from the start.

    The map must be the same function in both passes, and may depend on a tensor with a graph only
    if that is an input of the layer; anything else raises an error, and so do second derivatives.
    In one graph of ``torch.compile`` and in transforms, the steps are recorded as usual.

    Args:
        max_evaluations, tol, stop, norm, atol, record_trace: see :class:`.IterativeSolver`.
        damping: :math:`\beta`, in (0, 2) and not 1.
        checkpoint_every: store two iterates every so many evaluations, from which iterates are
            computed again instead of from the start.
        backward_tol: accuracy of the gradient, relative to the cotangent v of each sample. The
            backward pass of a sample ends when its cotangent has decayed to this part of v, and
            reconstructions may change the gradient by about as much. At least half a unit in the
            last digit of ``f``.
    """

    damping: float = 0.5
    checkpoint_every: int | None = None
    backward_tol: float = 1e-6

    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.damping, float | int) or not 0 < self.damping < 2:
            raise ValueError(f"damping must lie in (0, 2), got {self.damping!r}")
        if self.damping == 1:
            raise ValueError("damping must not be 1, with which a step has no inverse")
        if self.checkpoint_every is not None:
            check_at_least("checkpoint_every", self.checkpoint_every, 1)
        check_rate("backward_tol", self.backward_tol)

    def step(self, before: Tensor, fz: Tensor) -> Tensor:
        r"""Return :math:`z_{t+1}`, given :math:`z_{t-1}` and :math:`f(z_t)`."""
        return before.mul(1 - self.damping).add_(fz, alpha=self.damping)

    def inverse_step(self, after: Tensor, fz: Tensor) -> Tensor:
        r"""Return :math:`z_{t-1}`, given :math:`z_{t+1}` and :math:`f(z_t)`."""
        return after.sub(fz, alpha=self.damping).div_(1 - self.damping)

    def start(self, z0: Tensor) -> Iteration:
        """Return a run of the iteration, which holds one iterate more."""
        return _ReversibleSteps(self, z0)

    def _solve(self, f: Map, z0: Tensor) -> Solution:
        half = z0.dtype in (torch.float16, torch.bfloat16)
        wide = torch.float32 if half else widest_dtype(z0.device)
        # Compilers and transforms see ordinary steps, and decide themselves what is stored.
        if torch.is_grad_enabled() and not (torch.compiler.is_compiling() or transformed()):
            run = _RecordedSolve(self, f, z0, wide)
            solution, before = run.forward()
            z = _Reconstructed.apply(run, solution.z, before, z0, *run.f.tensors)
        else:
            solution = super()._solve(lambda z: f(z.to(z0.dtype)), z0.to(wide))
            z = solution.z.to(z0.dtype)
        dtype, trace = torch.promote_types(z0.dtype, torch.float32), solution.trace
        trace = None if trace is None else trace.to(dtype)
        return solution._replace(z=z, residual=solution.residual.to(dtype), trace=trace)


class _ReversibleSteps(Iteration):
    def __init__(self, solver: Reversible, z0: Tensor) -> None:
        self._solver, self._before = solver, z0

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        before, self._before = self._before, z
        return self._solver.step(before, fz)


class _RecordedSolve:
    """A solve and its backward pass. States are flat and wide, ``(B, D)``."""

    def __init__(self, solver: Reversible, f: Map, z0: Tensor, wide: torch.dtype) -> None:
        self._solver, self.f, self._attached = solver, Repeated(f, z0, wide), z0.requires_grad
        self._start = z = self.f.flatten(z0.detach().clone())  # the caller may change z0
        self._steps = torch.zeros(len(z), dtype=torch.long, device=z.device)  # to the best iterate
        self._stored: dict[int, tuple[Tensor, Tensor]] = {}  # iterates t and t - 1
        generator = torch.Generator(z.device).manual_seed(0)
        self._direction = torch.empty_like(z[:1]).normal_(generator=generator)
        self._projections: list[Tensor] = []
        self._tol = max(solver.backward_tol, torch.finfo(working_dtype(z0)).eps / 2)

    @torch.no_grad()
    def forward(self) -> tuple[Solution, Tensor]:
        """Return the solution and the iterate before it."""
        solver, z = self._solver, self._start
        before = best_before = z
        state = SolveState(solver, z)
        for t in range(solver.max_evaluations):
            self._projections.append(self._project(z))
            fz = self.f.search(z) if t < 2 else self.f.value(z)
            improved = state.update(z, fz, fz - z, 0)
            best_before = torch.where(improved.unsqueeze(1), before, best_before)
            self._steps = torch.where(improved, t, self._steps)
            z, before = solver.step(before, fz), z
            if t == 0 and (self._attached or self.f.tensors):
                state.first_step = z
            if t + 1 == solver.max_evaluations or state.finished():
                break
            if t % (solver.checkpoint_every or solver.max_evaluations) == 0:
                self._stored[t + 1] = z, before
        solution = state.solution()
        # A sample without any finite evaluation takes no part in the backward pass.
        self._steps = torch.where(solution.residual < torch.inf, self._steps.clamp_min(1), 0)
        return solution, best_before

    def backward(self, v: Tensor, z: Tensor, before: Tensor) -> list[Tensor | None]:
        """Return the gradients with respect to the start and to the tensors that ``f`` uses."""
        beta, sums = self._solver.damping, dict[int, Tensor]()
        u = self.f.flatten(v).where(self._steps.unsqueeze(1) > 0, 0)
        w = torch.zeros_like(u)  # u and w are the cotangents of z and before
        tol = self._tol * vector_norm(u, dim=1)
        tol = tol.masked_fill(tol == torch.inf, torch.nan)  # an infinite cotangent never decays
        for t in range(max(self._steps.tolist(), default=0), 0, -1):
            # The pass of a sample begins at its own step, and ends when its cotangent has decayed.
            weight = vector_norm(u, dim=1) + vector_norm(w, dim=1)
            pending = ~(weight <= tol)  # true for nan
            u, w = u.where(pending.unsqueeze(1), 0), w.where(pending.unsqueeze(1), 0)
            active = pending & (self._steps >= t)
            wrong = active & self._differs(t, z, before, tol / weight)
            any_pending, any_wrong = torch.stack((pending.any(), wrong.any())).tolist()
            if not any_pending:
                break
            mask = active.unsqueeze(1)
            if any_wrong or t in self._stored:
                pair = self._repeat(t)
                if bool((active & self._differs(t, *pair, tol / weight)).any()):
                    raise RuntimeError(
                        "f gives other values in the backward pass than in the forward pass, so "
                        "its iterates cannot be reconstructed: it must not draw random numbers, "
                        "nor depend on anything that has changed since"
                    )
                z, before = pair[0].where(mask, z), pair[1].where(mask, before)
            # One step back, of the iterates and of their cotangents.
            fz, product = self.f.pull_back(before, (beta * u).where(mask, 0), sums)
            z, before = before.where(mask, z), self._solver.inverse_step(z, fz).where(mask, before)
            u, w = (w + product).where(mask, u), ((1 - beta) * u).where(mask, w)
        if not sums:  # no step, since the cotangent is zero: so are the gradients
            sums = dict(enumerate(map(torch.zeros_like, self.f.tensors)))
        return [self.f.restore(u + w), *map(sums.get, range(len(self.f.tensors)))]

    def _project(self, z: Tensor) -> Tensor:
        return (z * self._direction).sum(dim=1)  # a matrix product might have fewer digits

    def _differs(self, t: int, z: Tensor, before: Tensor, allowed: Tensor) -> Tensor:
        """Return where ``before`` differs from iterate t - 1 by more than ``allowed * ||z||``."""
        error = (self._project(before) - self._projections[t - 1]).abs()
        size: Tensor = vector_norm(z, dim=1)
        return (error > allowed * size) | ~error.isfinite()

    def _repeat(self, t: int) -> tuple[Tensor, Tensor]:
        """Return iterates t and t - 1, computed from the last stored pair."""
        last = max(i for i in self._stored if i <= t)
        z, before = self._stored[last]
        for _ in range(last, t):
            z, before = self._solver.step(before, self.f.value(z)), z
        return z, before


class _Reconstructed(torch.autograd.Function):
    """The result of a recorded solve, as a function of the start and of the tensors f uses."""

    @staticmethod
    def forward(
        ctx: Any, run: _RecordedSolve, z: Tensor, before: Tensor, z0: Tensor, *tensors: Tensor
    ) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(z, before, *tensors)  # the tensors, to refuse changes in place
        return run.f.restore(z).clone()

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        # In a backward pass, gradients are enabled only under create_graph=True.
        if torch.is_grad_enabled() or is_legacy_batchedtensor(v):
            raise RuntimeError(
                "the gradient of a Reversible solve has no derivative of its own "
                "(create_graph=True) and takes one cotangent at a time (no is_grads_batched=True): "
                "use FixedPoint with BackpropThroughSolver"
            )
        return None, None, None, *ctx.run.backward(v, *ctx.saved_tensors[:2])
