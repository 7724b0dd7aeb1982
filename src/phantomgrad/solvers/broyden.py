"""Broyden's method with limited memory, in two passes over the memory."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.context import cheap_to_read, readable
from phantomgrad.precision import full_precision
from phantomgrad.solvers.base import Inverse, Map, Solution, layout
from phantomgrad.solvers.iterative import Advance, IterativeSolver, all_in, search, write


@dataclass(frozen=True, kw_only=True)
class Broyden(IterativeSolver):
    r"""Broyden's "good" method with limited memory, sample by sample (Broyden, 1965).

    With :math:`g(z) = f(z) - z`, :math:`H_0 = -I` (an estimate of the inverse Jacobian of g), step
    :math:`s_k = -H_k g_k` and the change :math:`y_k` of g along it,

    .. math:: H_{k+1} = H_k + \frac{(s_k - H_k y_k)\, s_k^\top H_k}{s_k^\top H_k y_k} .

    As a product, :math:`H_k = \prod_{j<k} (I + u_j s_j^\top)(-I)` with
    :math:`u_j = s_{j+1} / \|s_j\|^2`, so that only the steps are stored: half the memory of the
    usual pairs (u, v). One iteration reads them twice: first for their products with the new
    residual and with the newest step, which extends their Gram matrix; then for the next step.

    Args:
        max_evaluations, tol, stop, norm, record_trace: see :class:`.IterativeSolver`.
        memory: number of steps kept before a restart from :math:`H_0`; by default all.
        keep_inverse: return the estimate :math:`-H_k` of :math:`(I - J)^{-1}` at the best iterate
            of each sample, as the ``inverse`` of the solution, which holds all steps in memory. A
            restart forgets them: a sample that stopped before the last restart has the identity.
    """

    memory: int | None = None
    keep_inverse: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            check_at_least("memory", self.memory, 1)

    def start(self, z0: Tensor) -> Advance:
        """Return the steps of a new solve, with room for ``memory`` of them."""
        return self._run(z0).advance

    def _run(self, z0: Tensor) -> "_Run":
        # After the last evaluation no step is taken, unless the inverse needs one.
        usable = max(self.max_evaluations - (1 if self.keep_inverse else 2), 1)
        return _Run(z0, usable if self.memory is None else min(self.memory, usable))

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Return the best iterates within the budget; see :meth:`Solver.solve`."""
        return self._with_inverse(f, z0) if self.keep_inverse else super().solve(f, z0)

    @torch.no_grad()
    def _with_inverse(self, f: Map, z0: Tensor) -> Solution:
        runs, last = list[_Run](), list[Tensor]()

        def seen(z: Tensor) -> Tensor:
            last[:] = z, f(z)
            return last[1]

        def start(z0: Tensor) -> Advance:
            runs.append(self._run(z0))
            return runs[0].advance

        # The trace says where the best iterates were.
        solution = search(replace(self, record_trace=True), seen, z0, start)
        flatten, restore = layout(z0)
        z, fz = (flatten(t).to(torch.promote_types(z0.dtype, torch.float32)) for t in last)
        parts = runs[0].inverse(z, fz, solution)
        trace = solution.trace if self.record_trace else None
        return solution._replace(trace=trace, inverse=Inverse(*parts, (flatten, restore)))


class _Run:
    """One run of the method.

    ``slots`` holds the steps ``s_0 .. s_{k-1}`` followed by the current ``g``: one contiguous
    operand for both passes. The coefficients ``x`` of ``w = H_{k-1} g`` solve a unit lower
    triangular system, ``x_j - sum_{i<j} x_i m_ji / G_jj = -s_j^T g / G_jj``, in which ``G`` is the
    Gram matrix of the steps and ``m_ji = s_j^T u_i ||s_i||^2 = G_{j, i+1}``.
    """

    def __init__(self, z0: Tensor, memory: int) -> None:
        batch, size = z0.shape
        self._memory = memory
        self._cheap, self._direct = cheap_to_read(z0), readable(z0)
        self._count = 0
        self._slots = z0.new_empty(batch, memory + 1, size)
        self._slot = self._slots.unbind(dim=1)  # views made once: each costs as much as a product
        self._system = z0.new_zeros(batch, memory, memory)  # without its diagonal of ones
        self._scale = z0.new_zeros(batch, memory)  # -1 / ||s_j||^2; 0 disables update j
        self._own = torch.split(self._scale, 1, dim=1)
        self._minus_one = z0.new_full((), -1)
        self._least = torch.finfo(z0.dtype).eps ** 0.5  # of a denominator

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        """Return the next iterate; see :data:`.Advance`."""
        if self._count > self._memory:
            self._count = 0
        slot = self._slot[self._count]
        slot.copy_(g)
        step = self._step(g)
        slot.copy_(step)
        self._count += 1
        return step.add_(z)

    def _step(self, g: Tensor) -> Tensor:
        """Return ``-H_k g``, ``(B, D)``, in a new tensor."""
        k = self._count
        if k == 0:
            return g.clone()
        newest = k - 1
        # The long operand goes last: with it first, the CPU takes up to eight times longer.
        products = torch.bmm(self._slots[:, newest : k + 1], self._slots[:, :k].mT)  # (B, 2, k)
        gram, right = products.unbind(dim=1)
        own = self._own[newest]
        write(torch.div, self._minus_one, gram[:, newest:], out=own, direct=self._direct)
        if newest:
            row = self._system[:, newest, :newest]
            write(torch.mul, gram[:, 1:], own, out=row, direct=self._direct)
        right = right.mul_(self._scale[:, :k])
        x = _solve_unit_triangular(self._system[:, :k, :k], right)
        scale = self._denominator(x).neg().unsqueeze(1)
        x[:, -1].fill_(-1)  # of g itself
        weights = x.div_(scale).unsqueeze(1)
        return torch.bmm(weights, self._slots[:, 1 : k + 1]).squeeze(1)

    def _denominator(self, x: Tensor) -> Tensor:
        """Return ``s^T H y / ||s||^2`` of the newest step; where it vanishes, drop the update."""
        newest = self._count - 1
        denominator: Tensor = x[:, -1] + 1
        if self._cheap and all_in(denominator, self._least, math.inf):
            return denominator
        size = denominator.abs()
        useless = ~((size >= self._least) & (size < torch.inf))  # True for nan
        self._scale[:, newest].masked_fill_(useless, 0)
        self._system[:, newest, :newest].masked_fill_(useless.unsqueeze(1), 0)
        x[:, newest].masked_fill_(useless, 0)
        return denominator.masked_fill_(useless, 1)

    def inverse(self, z: Tensor, fz: Tensor, solution: Solution) -> tuple[Tensor, Tensor]:
        r"""Return ``steps`` and ``weights`` of an :class:`Inverse`, which is ``-H``, in place.

        ``-H^T v = v + sum_j c_j s_j / ||s_j||^2``, where c solves the transpose of the lower
        triangular system for the products of the :math:`s_{j+1}` with v. All are scaled to unit
        steps, since steps shrink by many orders. Updates that are void, or later than the best
        iterate, drop out.
        """
        trace = solution.trace
        assert trace is not None
        with full_precision(z.device):
            self.advance(z, fz, fz - z)  # the newest update needs the next step
            k = self._count - 1
            best = trace.nan_to_num(nan=torch.inf).argmin(dim=0) - (len(trace) - 1 - k)
            # No step of a diverged sample: after a restart, none is finite.
            best = best.masked_fill(solution.diverged, -1).unsqueeze(1)
            steps, numbers = self._slots[:, : k + 1], torch.arange(k + 1, device=z.device)
            steps.masked_fill_((numbers > best).unsqueeze(2), 0)  # some may not be finite
            size = torch.linalg.vector_norm(steps, dim=2)
            size = size.masked_fill_(size == 0, 1)
            ratio = size.unsqueeze(2) / size.unsqueeze(1)
            later = (numbers[:-1] >= best).unsqueeze(2)
            lower = (self._system[:, :k, :k] * ratio[:, :-1, :-1]).masked_fill_(later, 0)
            following = torch.eye(k + 1, dtype=z.dtype, device=z.device)[1:]  # s_{j+1} of s_j
            right = (following * ratio.mT[:, :-1]).masked_fill_(later, 0)
            weights = torch.linalg.solve_triangular(lower.mT, right, upper=True, unitriangular=True)
            void = (self._scale[:, :k] == 0).unsqueeze(2)
            return steps.div_(size.unsqueeze(2)), weights.masked_fill_(void, 0)


def _solve_unit_triangular(system: Tensor, right: Tensor) -> Tensor:
    """Return x with ``x_j + sum_{i<j} system_ji x_i = right_j``, ``(B, k)``.

    The rest of ``system`` must be zero.
    """
    solution: Tensor = torch.linalg.solve_triangular(
        system, right.unsqueeze(2), upper=False, unitriangular=True
    )
    return solution.squeeze(2)
