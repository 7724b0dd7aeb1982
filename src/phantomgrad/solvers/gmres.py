"""GMRES, for the linear equation of an adjoint."""

from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_not_negative
from phantomgrad.context import cheap_to_read
from phantomgrad.precision import full_precision, widest_dtype
from phantomgrad.solvers.base import (
    LinearSolver,
    Map,
    Solution,
    check_start,
    evaluate,
    layout,
    raised_tolerance,
)
from phantomgrad.solvers.iterative import AnyActive


@dataclass(frozen=True, kw_only=True)
class GMRES(LinearSolver):
    r"""Minimal residuals in a Krylov space, sample by sample (Saad and Schultz, 1986).

    For :math:`u = A u + v`, with :math:`B = I - A`, m products with A give

    .. math:: u_m = \arg\min_{u \in \mathrm{span}(v, B v, \dots, B^{m-1} v)} \|v - B u\| , \qquad
              r_m = v - B u_m .

    :math:`\|r_m\|` never grows with m, whatever the spectral radius of A, and vanishes for m = D.
    The result is :math:`u_m + r_m = A u_m + v`, one more fixed-point step at no cost. Its
    ``residual`` is the one before that step, :math:`\|r_m\| / \|A u_m + v\|`, which the
    orthonormal basis (Gram-Schmidt, twice) gives without another product. A sample also stops when
    a product adds no new direction; one whose v is not finite has diverged. GMRES solves linear
    (adjoint) equations only: it cannot find an equilibrium.

    Args:
        max_evaluations: m, the largest number of products; m + 1 vectors of D are kept.
        tol: a sample has converged when its residual is below ``tol``.
    """

    max_evaluations: int = 30
    tol: float = 1e-6

    def __post_init__(self) -> None:
        check_at_least("max_evaluations", self.max_evaluations, 1)
        check_not_negative("tol", self.tol)

    @torch.no_grad()
    def solve_linear(self, op: Map, v: Tensor) -> Solution:
        """Return the solution of least residual within the budget; see :class:`LinearSolver`."""
        check_start(v)
        flatten, restore = layout(v)
        run = _Krylov(flatten(v.to(torch.promote_types(v.dtype, torch.float32))), self)
        any_active, cheap = AnyActive(v), cheap_to_read(v)
        for step in range(self.max_evaluations):
            call: Map = op if step else partial(evaluate, op)
            w = run.basis[:, step]
            product = flatten(call(restore(w).to(v.dtype)).to(w.dtype))
            with full_precision(v.device):
                run.extend(w - product)
            if (self.tol or cheap) and not any_active(run.active):
                break
        with full_precision(v.device):
            return run.solution(lambda u: restore(u).to(v.dtype))

    def for_dtype(self, dtype: torch.dtype) -> Self:
        """Return this solver with a tolerance that products computed in ``dtype`` can reach."""
        return raised_tolerance(self, dtype)


class _Krylov:
    """An orthonormal basis V of each sample's space, and ``B V_k = V_{k+1} H``.

    The residual of least norm is the projection of ``v`` on the complement of the range of H. So
    with the vector q that has ``q^T H = 0`` and ``q_0 = 1``, its coefficients are ``q / ||q||^2``
    times ``||v||``; each step adds an entry to q. H without its first row is upper triangular and
    gives the coefficients of u. All but V is in float64, where there is one. In the columns of a
    sample that has stopped, H is one below the diagonal, else zero, and V is zero: nothing changes.
    """

    def __init__(self, v: Tensor, solver: GMRES) -> None:
        batch, most = len(v), solver.max_evaluations
        self._solver = solver
        self._eps = 10 * torch.finfo(v.dtype).eps
        self._size = torch.linalg.vector_norm(v, dim=1)
        self._diverged = ~self._size.isfinite()
        self.active = (self._size > 0) & ~self._diverged
        self._evaluations = torch.zeros_like(self.active, dtype=torch.long)
        self._count = 0
        self.basis = v.new_empty(batch, most + 1, v.shape[1])
        self.basis[:, 0] = torch.where(self.active[:, None], v / self._size[:, None], 0)
        wide = widest_dtype(v.device)
        self._null = v.new_zeros(batch, most + 1, dtype=wide)  # q
        self._null[:, 0] = 1
        self._system = v.new_zeros(batch, most, most, dtype=wide)  # H, from its second row

    def extend(self, w: Tensor) -> None:
        """Extend the basis by ``w = B v_k``, and update the residuals."""
        k, known = self._count, self.basis[:, : self._count + 1]
        whole, column = torch.linalg.vector_norm(w, dim=1), known.new_zeros(known.shape[:2])
        for _ in range(2):
            parts = torch.bmm(w.unsqueeze(1), known.mT)  # (B, 1, k + 1)
            w = w - torch.bmm(parts, known).squeeze(1)
            column += parts.squeeze(1)
        length = torch.linalg.vector_norm(w, dim=1)
        self._evaluations += self.active
        self._diverged |= self.active & ~(length < torch.inf)
        active = self.active & (length < torch.inf)
        new = active & (length > self._eps * (1 + whole))  # or only rounding error is new
        self.basis[:, k + 1] = torch.where(new[:, None], w / length[:, None], 0)

        least = (self._eps * whole).clamp_min(torch.finfo(w.dtype).tiny)
        null = self._null[:, : k + 1]
        column, length = column.to(null.dtype), torch.maximum(length, least).to(null.dtype)
        entry = -(null * column).sum(dim=1) / length
        # A space without a new direction holds the solution, or there is none: B is singular.
        solved = entry.abs() * self._eps**0.5 > torch.linalg.vector_norm(null, dim=1)
        useful = new | (active & solved)
        self._null[:, k + 1] = torch.where(useful, entry, 0)
        self._system[:, :k, k] = torch.where(useful[:, None], column[:, 1:], 0)
        self._system[:, k, k] = torch.where(useful, length, 1)
        self._count += 1
        self.active = new & (self._eps * torch.linalg.vector_norm(self._null, dim=1) < 1)
        if self._solver.tol:
            self.active &= self._minimum()[1] >= self._solver.tol

    def _minimum(self) -> tuple[Tensor, Tensor]:
        """Return the coefficients of ``(u + r) / ||v||``, and the residuals."""
        k = self._count
        null = self._null[:, : k + 1]
        r = null / null.square().sum(dim=1, keepdim=True)
        u = torch.linalg.solve_triangular(
            self._system[:, :k, :k], -r[:, 1:].unsqueeze(2), upper=True
        ).squeeze(2)
        ahead = torch.nn.functional.pad(u, (0, 1)) + r
        residual = torch.linalg.vector_norm(r, dim=1) / torch.linalg.vector_norm(ahead, dim=1)
        return ahead, residual

    def solution(self, restore: Map) -> Solution:
        """Return the result."""
        coefficients, residual = self._minimum()
        coefficients = coefficients.to(self._size.dtype) * self._size[:, None]
        u = torch.bmm(coefficients.unsqueeze(1), self.basis[:, : self._count + 1]).squeeze(1)
        residual = residual.to(u.dtype).masked_fill_(self._size == 0, 0)
        residual = residual.masked_fill_(~self._size.isfinite(), torch.inf)
        return Solution(
            z=restore(u),
            residual=residual,
            evaluations=self._evaluations,
            converged=residual < self._solver.tol,
            diverged=self._diverged,
            tol=self._solver.tol,
        )
