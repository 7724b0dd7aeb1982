"""The reversible solver, whose own gradient needs no stored iterates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.solvers.accelerators import transformed
from phantomgrad.solvers.base import Solution
from phantomgrad.solvers.iterative import Iteration, IterativeSolver, SolveState
from phantomgrad.solvers.maps import Map, Repeated, layout, working_dtype


@dataclass(frozen=True, kw_only=True)
class Reversible(IterativeSolver):
    r"""An iteration that can be inverted, for backpropagation through it without its iterates.

    .. math:: z_{t+1} = (1 - \beta) z_{t-1} + \beta f(z_t), \qquad z_{-1} = z_0

    (McCallum et al., 2025, where two states take turns: N steps are 2N evaluations, and one more
    for the residual of the last.) With :class:`phantomgrad.BackpropThroughSolver` only the last two
    iterates of each sample are kept; the backward pass finds the others by
    :math:`z_{t-1} = (z_{t+1} - \beta f(z_t)) / (1 - \beta)`, and the gradient is that of the
    iteration. Each iterate costs one recorded evaluation and one vector-Jacobian product there.

    It converges where all eigenvalues j of the Jacobian satisfy :math:`|j| < 1` if real, for every
    :math:`\beta`, and :math:`|j| < (2 - \beta) / \beta` if imaginary. Unlike damped fixed-point
    iteration it does not converge for :math:`j \le -1`, and for real j it is never the faster one.

    Rounding errors of the backward pass grow by :math:`|1 - \beta|^{-1/2}` or more per iterate. So
    iterates are kept in more digits than those of ``f`` (float64, and float32 for half precision):
    with :math:`\beta = 1/2` some 40 iterates of a float32 map are found again bit for bit. Each is
    compared with a random projection of the one of the forward pass, one number for each sample;
    where an error would count, it is computed anew, forward from the kept iterates before.

    The map must be the same function in both passes, and must not depend on a tensor with a graph
    that is not an input of the layer; both are tested. Second derivatives are refused. In one
    graph of ``torch.compile`` and in transforms the steps are recorded like those of other solvers.

    Args:
        damping: :math:`\beta`, in (0, 2) and not 1.
        checkpoint_every: also keep two iterates every so many evaluations, for fewer evaluations
            where iterates must be computed anew.
        backward_tol: accuracy of the gradient, relative to the cotangent of each sample: the
            backward pass of a sample ends where its cotangent has faded to this, and iterates may
            have errors that change the gradient by about this. At least half a unit in the last
            digit of ``f``.
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
        if not isinstance(self.backward_tol, float | int) or not 0 <= self.backward_tol < 1:
            raise ValueError(f"backward_tol must lie in [0, 1), got {self.backward_tol!r}")

    def start(self, z0: Tensor) -> Iteration:
        """Return a run of the iteration, which keeps one iterate more."""
        return _Alternation(self.damping, z0)

    def _solve(self, f: Map, z0: Tensor) -> Solution:
        # Compilers and transforms see ordinary steps, and decide themselves what is kept.
        if torch.is_grad_enabled() and not (torch.compiler.is_compiling() or transformed()):
            run = _Run(self, f, z0)
            solution, before = run.search()
            z = _Solved.apply(run, solution.z, before, z0, *run.tensors)
        else:
            solution = super()._solve(lambda z: f(z.to(z0.dtype)), z0.to(_wide(z0)))
            z = solution.z.to(z0.dtype)
        dtype, trace = torch.promote_types(z0.dtype, torch.float32), solution.trace
        trace = None if trace is None else trace.to(dtype)
        return solution._replace(z=z, residual=solution.residual.to(dtype), trace=trace)


class _Alternation(Iteration):
    def __init__(self, damping: float, z0: Tensor) -> None:
        self._damping = damping
        self.before = z0

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        following = self.forward(self.before, fz)
        self.before = z
        return following

    def forward(self, before: Tensor, fz: Tensor) -> Tensor:
        return before.mul(1 - self._damping).add_(fz, alpha=self._damping)

    def backward(self, after: Tensor, fz: Tensor) -> Tensor:
        return after.sub(fz, alpha=self._damping).div_(1 - self._damping)


class _BestPair(SolveState):
    """Also keeps the iterate before the best one, and the number of steps to it."""

    def __init__(self, solver: IterativeSolver, z0: Tensor, iteration: _Alternation) -> None:
        super().__init__(solver, z0)
        self._iteration = iteration
        self.before = z0
        self.steps = torch.zeros(len(z0), dtype=torch.long, device=z0.device)

    def _keep_best(self, z: Tensor, residual: Tensor, improved: Tensor) -> None:
        super()._keep_best(z, residual, improved)
        self.before = torch.where(improved.unsqueeze(1), self._iteration.before, self.before)
        self.steps = torch.where(improved, self._count - 1, self.steps)


class _Run:
    """A recorded solve, and its backward pass. States are flat and wide, ``(B, D)``."""

    def __init__(self, solver: Reversible, f: Map, z0: Tensor) -> None:
        self._solver, self._dtype, self._attached = solver, z0.dtype, z0.requires_grad
        self._f = Repeated(f, z0)
        self._flatten, self._restore = layout(z0)
        start = self._flatten(z0.detach().to(_wide(z0), copy=True))  # the caller may change z0
        self._iteration = _Alternation(solver.damping, start)
        self._kept = {0: (start, start)}
        self._projection = torch.randn(
            start.shape[1],
            generator=torch.Generator(start.device).manual_seed(0),
            dtype=start.dtype,
            device=start.device,
        )
        self._projected: list[Tensor] = []
        self._steps, self._size = start.new_zeros(0), start.new_zeros(0)
        self._tol = max(solver.backward_tol, torch.finfo(working_dtype(z0)).eps / 2)

    @torch.no_grad()
    def search(self) -> tuple[Solution, Tensor]:
        """Return the solution and the iterate before it."""
        solver, iteration = self._solver, self._iteration
        z = iteration.before
        state = _BestPair(solver, z, iteration)
        for evaluation in range(solver.max_evaluations):
            self._projected.append(self._projection_of(z))
            if solver.checkpoint_every and evaluation % solver.checkpoint_every == 0:
                self._kept[evaluation] = z, iteration.before
            fz = self._evaluate(self._f.value if evaluation > 1 else self._f.search, z)
            g = fz - z
            state.update(z, fz, g, 0)
            if evaluation == 0 and (self.tensors or self._attached):
                state.first_step = iteration.forward(z, fz)
            if evaluation + 1 == solver.max_evaluations or state.finished():
                break
            z = iteration.advance(z, fz, g)
        solution = state.solution()
        # A sample without any finite evaluation takes no part in the backward pass.
        self._steps = torch.where(solution.residual < torch.inf, state.steps.clamp_min(1), 0)
        self._size = torch.linalg.vector_norm(solution.z, dim=1)
        return solution, state.before

    @property
    def tensors(self) -> list[Tensor]:
        """What the map depends on."""
        return self._f.tensors

    def shown(self, z: Tensor) -> Tensor:
        """Return a new tensor like the start."""
        return self._restore(z).to(self._dtype, copy=True)

    def backward(
        self, cotangent: Tensor, z: Tensor, before: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the gradients by the start and by what the map depends on."""
        beta, steps = self._solver.damping, self._steps
        u = torch.where(steps.unsqueeze(1) > 0, self._flatten(cotangent).to(z.dtype), 0)
        u_before = torch.zeros_like(u)  # the cotangents of z and of the iterate before
        size = torch.linalg.vector_norm(u, dim=1)
        sums: list[Tensor | None] = [None] * len(self.tensors)
        for step in range(int(steps.max()) if len(steps) else 0, 0, -1):
            weight = torch.linalg.vector_norm(u, dim=1) + torch.linalg.vector_norm(u_before, dim=1)
            pending = ~(weight <= self._tol * size)  # true for nan
            u, u_before = (torch.where(pending.unsqueeze(1), t, 0) for t in (u, u_before))
            if not bool(pending.any()):
                break
            active = (pending & (steps >= step)).unsqueeze(1)
            z, before = self._checked(step, z, before, active, weight / size)
            point, given = self._restore(before).to(self._dtype), torch.where(active, beta * u, 0)
            fz, product, gradients = self._f.pull_back(point, self._restore(given))
            _add(sums, gradients)
            if step - 1 in self._kept:
                earlier = self._kept[step - 1][1]
            else:
                earlier = self._iteration.backward(z, self._flatten(fz).to(z.dtype))
            z, before = torch.where(active, before, z), torch.where(active, earlier, before)
            into_before = u_before + self._flatten(product).to(z.dtype)
            u, u_before = (
                torch.where(active, into_before, u),
                torch.where(active, (1 - beta) * u, u_before),
            )
        return self._restore(u + u_before), sums

    def _checked(
        self, step: int, z: Tensor, before: Tensor, active: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return iterates ``step`` and ``step - 1``, computed anew where their error counts."""
        if step - 1 in self._kept:
            return z, torch.where(active, self._kept[step - 1][0], before)
        if not self._fails(step - 1, before, active, weight):
            return z, before
        i = max(kept for kept in self._kept if kept < step)
        after, at = self._kept[i]
        for _ in range(i, step):
            fz = self._evaluate(self._f.value, after)
            after, at = self._iteration.forward(at, fz), after
        z, before = torch.where(active, after, z), torch.where(active, at, before)
        if self._fails(step - 1, before, active, weight):
            raise RuntimeError(
                "f gives other values in the backward pass than in the forward pass, so its "
                "iterates cannot be found again: it must not draw random numbers, nor depend on "
                "anything that has changed since"
            )
        return z, before

    def _fails(self, step: int, z: Tensor, active: Tensor, weight: Tensor) -> bool:
        scale = torch.maximum(torch.linalg.vector_norm(z, dim=1), self._size)
        error = (self._projection_of(z) - self._projected[step]).abs() / scale
        failed = ~(error < torch.inf) | (error * weight > self._tol)
        return bool((active.squeeze(1) & failed & (scale != 0)).any())

    def _projection_of(self, z: Tensor) -> Tensor:
        return (z * self._projection).sum(dim=1)

    def _evaluate(self, f: Map, z: Tensor) -> Tensor:
        return self._flatten(f(self._restore(z).to(self._dtype))).to(z.dtype)


class _Solved(torch.autograd.Function):
    """The result of a run as a function of the start and of what the map depends on."""

    @staticmethod
    def forward(
        ctx: Any, run: _Run, z: Tensor, before: Tensor, z0: Tensor, *tensors: Tensor
    ) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(z, before, *tensors)  # the tensors, to refuse changes in place
        return run.shown(z)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # in a backward pass, true only under create_graph=True
            raise RuntimeError(
                "the gradient of a Reversible solve has no derivative of its own "
                "(create_graph=True): use FixedPoint with BackpropThroughSolver"
            )
        z, before, *_ = ctx.saved_tensors
        start, gradients = ctx.run.backward(cotangent, z, before)
        return None, None, None, start, *gradients


def _wide(z0: Tensor) -> torch.dtype:
    half = z0.dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half or z0.device.type == "mps" else torch.float64


def _add(sums: list[Tensor | None], gradients: Sequence[Tensor | None]) -> None:
    for i, gradient in enumerate(gradients):
        if gradient is not None:
            total, dtype = sums[i], torch.promote_types(gradient.dtype, torch.float32)
            sums[i] = gradient.to(dtype, copy=True) if total is None else total.add_(gradient)
