"""The reversible solver: backpropagation through iterates that are not stored."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.linalg import vector_norm

from phantomgrad.checks import check_rate
from phantomgrad.context import readable
from phantomgrad.precision import autocast_settings, widest_dtype, working_dtype
from phantomgrad.solvers.base import Map, ParametricMap, Solution, check_start, evaluate, layout
from phantomgrad.solvers.iterative import Advance, IterativeSolver, Progress, search


@dataclass(frozen=True, kw_only=True)
class Reversible(IterativeSolver):
    r"""An iteration that can be run backwards, for backpropagation in constant memory.

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
    projection of each iterate, one number per sample, is stored as well. If it shows that a
    reconstruction is too inaccurate for the gradient, the iterate is computed again from the start.

    Gradients reach the parameters of the cell, the inputs of the layer and ``z0``. A recorded solve
    refuses a map that is not that of a layer, one that depends on any other tensor with a graph,
    and second derivatives. Where no numbers can be read (``fullgraph=True``, ``torch.vmap``,
    ``meta``) the steps are recorded as usual, in memory that grows with their number.

    Args:
        max_evaluations, tol, stop, norm, record_trace: see :class:`.IterativeSolver`.
        damping: :math:`\beta`, in (0, 2) and not 1.
        backward_tol: accuracy of the gradient, relative to v, the gradient of the loss with respect
            to the equilibrium of each sample. The backward pass of a sample ends when v, carried
            back through its steps, has decayed to this part of itself; reconstructions may change
            the gradient by about as much. At least half a unit in the last digit of ``f``.
    """

    damping: float = 0.5
    backward_tol: float = 1e-6

    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.damping, float | int) or not 0 < self.damping < 2:
            raise ValueError(f"damping must lie in (0, 2), got {self.damping!r}")
        if self.damping == 1:
            raise ValueError("damping must not be 1, with which a step has no inverse")
        check_rate("backward_tol", self.backward_tol)

    def step(self, before: Tensor, fz: Tensor) -> Tensor:
        r"""Return :math:`z_{t+1}`, given :math:`z_{t-1}` and :math:`f(z_t)`."""
        return before.mul(1 - self.damping).add_(fz, alpha=self.damping)

    def inverse_step(self, after: Tensor, fz: Tensor) -> Tensor:
        r"""Return :math:`z_{t-1}`, given :math:`z_{t+1}` and :math:`f(z_t)`."""
        return after.sub(fz, alpha=self.damping).div_(1 - self.damping)

    def start(self, z0: Tensor) -> Advance:
        """Return the steps, which keep the iterate before the last."""
        before = z0

        def advance(z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
            nonlocal before
            earlier, before = before, z
            return self.step(earlier, fz)

        return advance

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Return the best iterates within the budget; see :meth:`.Solver.solve`."""
        check_start(z0)
        half = z0.dtype in (torch.float16, torch.bfloat16)
        wide = torch.float32 if half else widest_dtype(z0.device)
        if torch.is_grad_enabled() and readable(z0):
            if not isinstance(f, ParametricMap):
                raise TypeError(
                    "Reversible differentiates the map of a DEQ, whose tensors it knows, got "
                    f"{type(f).__name__}: use a layer, FixedPoint, or torch.no_grad()"
                )
            run = _RecordedSolve(self, f, z0, wide)
            solution, before = run.forward()
            z = _Reconstructed.apply(run, solution.z, before, z0, *f.tensors)
        else:
            solution = search(self, lambda z: f(z.to(z0.dtype)), z0.to(wide))
            z = solution.z.to(z0.dtype)
        dtype, trace = torch.promote_types(z0.dtype, torch.float32), solution.trace
        trace = None if trace is None else trace.to(dtype)
        return solution._replace(z=z, residual=solution.residual.to(dtype), trace=trace)


class _RecordedSolve:
    """A solve and its backward pass. States are flat and wide, ``(B, D)``."""

    def __init__(self, solver: Reversible, f: ParametricMap, z0: Tensor, wide: torch.dtype) -> None:
        self._solver = solver
        self._flatten, self._restore = layout(z0)
        self._dtype, self._wide = z0.dtype, wide
        self._autocast = autocast_settings(z0.device.type)
        # Copies: no gradient runs on into the graph of a tensor at each evaluation.
        try:
            self._leaves = [t.detach().requires_grad_() for t in f.tensors]
        except RuntimeError as error:
            raise RuntimeError(
                "Reversible is not recorded in a transform of torch.func: use FixedPoint"
            ) from error
        self._f = f.with_tensors(self._leaves)
        self._check_tensors(f, z0)
        self._start = z = self.flatten(z0.detach().clone())  # the caller may change z0
        self._steps = torch.zeros(len(z), dtype=torch.long, device=z.device)  # to the best iterate
        generator = torch.Generator(z.device).manual_seed(0)
        self._direction = torch.empty_like(z[:1]).normal_(generator=generator)
        self._projections: list[Tensor] = []
        self._tol = max(solver.backward_tol, torch.finfo(working_dtype(z0)).eps / 2)

    def _check_tensors(self, f: ParametricMap, z0: Tensor) -> None:
        """Raise if ``f(z)`` needs a gradient though its tensors do not: something else in it does.

        On a copy of its own, since a cell may keep what it computes.
        """
        constant = f.with_tensors([t.detach() for t in f.tensors])
        if evaluate(constant, z0.detach()).requires_grad:
            raise ValueError(
                "f(z) has a graph of its own (torch.enable_grad), or that of a tensor that is "
                "neither a parameter of the cell nor an input of the layer, which Reversible "
                "cannot follow in the backward pass: pass it to the layer, or use FixedPoint"
            )

    def flatten(self, z: Tensor) -> Tensor:
        """Return states of ``f`` as ``(B, D)``."""
        return self._flatten(z).to(self._wide)

    def restore(self, z: Tensor) -> Tensor:
        """Return flat states as those of ``f``."""
        return self._restore(z).to(self._dtype)

    def _evaluate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        # Always recorded: without a graph a map may round differently (fused, or compiled).
        z = self.restore(z).detach().requires_grad_()
        with torch.enable_grad(), torch.autocast(**self._autocast):
            return z, self.flatten(evaluate(self._f, z))

    def _value(self, z: Tensor) -> Tensor:
        return self._evaluate(z)[1].detach()

    def _pull_back(self, z: Tensor, u: Tensor, sums: list[Tensor]) -> tuple[Tensor, Tensor]:
        r"""Return ``f(z)`` and :math:`J^\top u`; add the gradients of the leaves to ``sums``."""
        leaf, fz = self._evaluate(z)
        if not fz.requires_grad:
            return fz, torch.zeros_like(z)
        product, *gradients = torch.autograd.grad(
            fz, [leaf, *self._leaves], u, materialize_grads=True, allow_unused=True
        )
        for total, gradient in zip(sums, gradients, strict=True):
            total += gradient
        return fz.detach(), self.flatten(product)

    @torch.no_grad()
    def forward(self) -> tuple[Solution, Tensor]:
        """Return the solution and the iterate before it."""
        solver, z = self._solver, self._start
        before = best_before = z
        progress = Progress(solver, z)
        for t in range(solver.max_evaluations):
            self._projections.append(self._project(z))
            fz = self._value(z)
            improved = progress.update(z, fz, fz - z)
            best_before = torch.where(improved.unsqueeze(1), before, best_before)
            self._steps = torch.where(improved, t, self._steps)
            z, before = solver.step(before, fz), z
            if t == 0:
                progress.on_graph(z, True)
            if progress.finished():
                break
        solution = progress.solution()
        # A sample without any finite evaluation takes no part in the backward pass.
        self._steps = torch.where(solution.residual < torch.inf, self._steps.clamp_min(1), 0)
        return solution, best_before

    def backward(self, v: Tensor, z: Tensor, before: Tensor) -> list[Tensor]:
        """Return the gradients with respect to the start and to the tensors of ``f``."""
        beta = self._solver.damping
        # In half precision, gradients are summed in float32.
        sums = [
            torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32))
            for t in self._leaves
        ]
        u = self.flatten(v).where(self._steps.unsqueeze(1) > 0, 0)
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
            if any_wrong:
                pair = self._repeat(t)
                if bool((active & self._differs(t, *pair, tol / weight)).any()):
                    raise RuntimeError(
                        "f gives other values in the backward pass than in the forward pass, so "
                        "its iterates cannot be reconstructed: it must not draw random numbers, "
                        "nor depend on anything that has changed since"
                    )
                z, before = pair[0].where(mask, z), pair[1].where(mask, before)
            # One step back, of the iterates and of their cotangents.
            fz, product = self._pull_back(before, (beta * u).where(mask, 0), sums)
            z, before = before.where(mask, z), self._solver.inverse_step(z, fz).where(mask, before)
            u, w = (w + product).where(mask, u), ((1 - beta) * u).where(mask, w)
        return [
            self.restore(u + w),
            *(s.to(t.dtype) for s, t in zip(sums, self._leaves, strict=True)),
        ]

    def _project(self, z: Tensor) -> Tensor:
        return (z * self._direction).sum(dim=1)  # a matrix product might have fewer digits

    def _differs(self, t: int, z: Tensor, before: Tensor, allowed: Tensor) -> Tensor:
        """Return where ``before`` differs from iterate t - 1 by more than ``allowed * ||z||``."""
        error = (self._project(before) - self._projections[t - 1]).abs()
        size: Tensor = vector_norm(z, dim=1)
        return (error > allowed * size) | ~error.isfinite()

    def _repeat(self, t: int) -> tuple[Tensor, Tensor]:
        """Return iterates t and t - 1, computed again from the start."""
        z = before = self._start
        for _ in range(t):
            z, before = self._solver.step(before, self._value(z)), z
        return z, before


class _Reconstructed(torch.autograd.Function):
    """The result of a recorded solve, as a function of the start and of the tensors f uses."""

    @staticmethod
    def forward(
        ctx: Any, run: _RecordedSolve, z: Tensor, before: Tensor, z0: Tensor, *tensors: Tensor
    ) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(z, before, *tensors)  # the tensors, to refuse changes in place
        return run.restore(z).clone()

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        # In a backward pass, gradients are enabled only under create_graph=True.
        if torch.is_grad_enabled() or not readable(v):
            raise RuntimeError(
                "a Reversible solve has no second derivatives (create_graph=True) and takes one "
                "cotangent at a time (is_grads_batched=False): use FixedPoint with "
                "BackpropThroughSolver"
            )
        return None, None, None, *ctx.run.backward(v, *ctx.saved_tensors[:2])
