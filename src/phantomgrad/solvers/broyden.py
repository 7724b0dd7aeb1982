"""Broyden's method with limited memory, in two passes over the memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.solvers.base import Solution, inverse_parts
from phantomgrad.solvers.context import full_precision, may_read, write
from phantomgrad.solvers.iterative import Iteration, IterativeSolver
from phantomgrad.solvers.maps import Map
from phantomgrad.solvers.systems import solve_unit_triangular

_SUFFICIENT_DECREASE = 1e-4
_SHORTEST_STEP = 2.0**-7


@dataclass(frozen=True, kw_only=True)
class Broyden(IterativeSolver):
    r"""Broyden's "good" method with limited memory, sample by sample (Broyden, 1965).

    With :math:`g(z) = f(z) - z`, :math:`H_0 = -I` (an estimate of the inverse Jacobian of g),
    direction :math:`d_k = -H_k g_k`, step :math:`s_k = t_k d_k` and the change
    :math:`y_k` of g along it,

    .. math:: H_{k+1} = H_k + \frac{(s_k - H_k y_k)\, s_k^\top H_k}{s_k^\top H_k y_k} .

    As a product, :math:`H_k = \prod_{j<k} (I + u_j s_j^\top)(-I)` with

    .. math:: u_j = (t_j\, d_{j+1} + b_j\, s_j) / \|s_j\|^2, \qquad b_j = t_j - 1 ,

    so that only the steps are stored: half the memory of the usual pairs (u, v). One iteration
    reads them twice: first for their products with the new residual and with the newest step, which
    extends their Gram matrix; then for the next direction.

    Args:
        max_evaluations, tol, stop, norm, atol, record_trace: see :class:`.IterativeSolver`.
        memory: number of steps kept before a restart from :math:`H_0`; by default all.
        line_search: reject a trial point at which ``||g||`` does not decrease, and halve the next
            step of that sample. A rejected point still updates H, with :math:`b_j = -1`, since
            :math:`-H_{j+1} g_j = s_j - H_{j+1} g(z_j + s_j)`. Trial points are ordinary
            evaluations and count against ``max_evaluations``.
        first_step: :math:`t_0`, the length of the first step of a solve; all other lengths are 1.
            The code of MDEQ before 2021-03-20 and that of the phantom gradient start with -1, away
            from :math:`f(z_0)`. Not with ``line_search``, which chooses the lengths itself.
        keep_inverse: return :math:`-H_k`, with k the number of steps to the best iterate of a
            sample, as the ``inverse`` of the solution, which then holds the steps. A restart
            forgets them: the inverse of a sample that stopped before the last restart of the batch
            is the identity.
    """

    memory: int | None = None
    line_search: bool = False
    first_step: float = 1.0
    keep_inverse: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            check_at_least("memory", self.memory, 1)
        if not math.isfinite(self.first_step) or self.first_step == 0:
            raise ValueError(f"first_step must be finite and not zero, got {self.first_step}")
        if self.line_search and self.first_step != 1:
            raise ValueError(f"first_step must be 1 with line_search=True, got {self.first_step}")

    def start(self, z0: Tensor) -> Iteration:
        """Return a run with room for ``memory`` steps."""
        # The residual of the last evaluation may overwrite a step, unless the inverse needs it.
        usable = max(self.max_evaluations - (1 if self.keep_inverse else 2), 1)
        memory = usable if self.memory is None else min(self.memory, usable)
        rule = _LineSearch(z0, memory) if self.line_search else _UnitSteps(self.first_step)
        return _BroydenIteration(z0, memory, rule, self.keep_inverse)

    def _solve(self, f: Map, z0: Tensor) -> Solution:
        if not self.keep_inverse or self.record_trace:
            return super()._solve(f, z0)
        traced = replace(self, record_trace=True)  # which says where the best iterates were
        return traced._solve(f, z0)._replace(trace=None)


class _BroydenIteration(Iteration):
    """One run of the method, with the step lengths of a rule.

    ``slots`` holds the steps ``s_0 .. s_{k-1}`` followed by the current ``g``: one contiguous
    operand for both passes. The coefficients ``x`` of ``w = H_{k-1} g`` solve a unit lower
    triangular system, ``x_j - sum_{i<j} x_i m_ji / G_jj = -s_j^T g / G_jj``, in which ``G`` is the
    Gram matrix of the steps and ``m_ji = s_j^T u_i ||s_i||^2``. The rule has the lengths ``t_j`` of
    the steps, and what they and ``b_j`` change in the algebra.
    """

    def __init__(
        self, z0: Tensor, memory: int, rule: _UnitSteps | _LineSearch, keep_inverse: bool
    ) -> None:
        batch, size = z0.shape
        self._rule = rule
        self._keep_inverse = keep_inverse
        self._memory = memory
        self._may_read = may_read(z0.device)
        self.count = 0
        self.slots = z0.new_empty(batch, memory + 1, size)
        self._system = z0.new_zeros(batch, memory, memory)  # without its diagonal of ones
        self._scale = z0.new_zeros(batch, memory)  # -1 / ||s_j||^2; 0 disables update j
        self._minus_one = z0.new_full((), -1)
        self._slot = z0  # the current one

    def difference(self, z: Tensor, fz: Tensor) -> Tensor:
        if self.count > self._memory:
            self.count = 0
        self._slot = self.slots[:, self.count]
        return write(torch.sub, fz, z, out=self._slot)

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        step, base = self._rule.step(self, z, g)
        self._slot.copy_(step)
        self.count += 1
        return step.add_(base)

    def rejected(self) -> Tensor | int:
        return self._rule.rejected()

    def inverse(self, z: Tensor, solution: Solution) -> tuple[Tensor, Tensor] | None:
        """Return the parts of ``-H``, by the updates up to the best iterates."""
        if not self._keep_inverse or (trace := solution.trace) is None:
            return None
        with full_precision(z.device):
            self.advance(z, z, self._slot)  # the newest update needs the next step
            k = self.count - 1
            best = trace.nan_to_num(nan=torch.inf).argmin(dim=0) - (len(trace) - 1 - k)
            # No step of a diverged sample: after a restart, none is finite.
            best = best.masked_fill(solution.diverged, -1)
            system, void = self._system[:, :k, :k], self._scale[:, :k] == 0
            products = self._rule.products(system)
            return inverse_parts(self.slots[:, : k + 1], system, products, void, best)

    def direction(self, g: Tensor) -> Tensor:
        """Return ``-H_k g``, ``(B, D)``."""
        k = self.count
        if k == 0:
            return g.clone()
        newest = k - 1
        # The long operand goes last: with it first, the CPU takes up to eight times longer.
        products = torch.bmm(self.slots[:, newest : k + 1], self.slots[:, :k].mT)  # (B, 2, k)
        gram, right = products.unbind(dim=1)
        scale = self._scale[:, :k]
        own = scale[:, newest:]
        write(torch.div, self._minus_one, gram[:, newest:], out=own)
        if newest:
            row = self._system[:, newest, :newest]
            write(torch.mul, self._rule.overlaps(gram), own, out=row)
        x = solve_unit_triangular(self._system[:, :k, :k], right.mul_(scale))
        weights = self._rule.weights(x, self._denominator(x))
        last = self.slots[:, k + 1 - weights.shape[1] : k + 1]
        return torch.bmm(weights.unsqueeze(1), last).squeeze(1)

    def _denominator(self, x: Tensor) -> Tensor:
        """Return the curvature of the newest step; where it vanishes, disable the update."""
        newest = self.count - 1
        denominator = self._rule.curvature(x)
        least = torch.finfo(x.dtype).eps ** 0.5
        if self._may_read and len(denominator):
            low, high = denominator.aminmax()
            if low.item() > least and high.item() < math.inf:
                return denominator
        size = denominator.abs()
        useless = ~((size > least) & (size < torch.inf))  # True for nan
        self._scale[:, newest].masked_fill_(useless, 0)
        self._system[:, newest, :newest].masked_fill_(useless.unsqueeze(1), 0)
        x[:, newest].masked_fill_(useless, 0)
        return denominator.masked_fill_(useless, 1)


class _UnitSteps:
    """``t_k = 1``, except for the first step of a solve, of length ``first``.

    With ``first != 1`` only ``u_0 = (t_0 s_1 + b_0 s_0) / ||s_0||^2`` differs, until a restart.
    """

    def __init__(self, first: float) -> None:
        self._plain = first == 1
        self._first, self._next_first = first, first

    def rejected(self) -> int:
        return 0

    def step(self, run: _BroydenIteration, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next step, in a new tensor, and the point that it starts from."""
        step = run.direction(g)
        if run.count == 0 and not self._plain:
            self._first, self._next_first = self._next_first, 1.0  # a restart takes a plain step
            step.mul_(self._first)
        return step, z

    def overlaps(self, gram: Tensor) -> Tensor:
        """Return ``m_ji`` of the newest step j and all older i, ``(B, k-1)``, from ``(B, k)``."""
        overlaps = gram[:, 1:]
        if not self._plain:
            overlaps[:, :1].mul_(self._first).add_(gram[:, :1], alpha=self._first - 1)
        return overlaps

    def curvature(self, x: Tensor) -> Tensor:
        """Return ``s^T H y / ||s||^2`` of the newest step, ``(B,)``."""
        if x.shape[1] == 1 and not self._plain:
            return 1 + self._first * x[:, -1]
        return x[:, -1] + 1

    def weights(self, x: Tensor, denominator: Tensor) -> Tensor:
        """Return the weights of the last slots, with ``g`` as the last one, in ``-H_k g``."""
        scale = -denominator.unsqueeze(1)
        if self._plain:
            x[:, -1].fill_(-1)
            return x.div_(scale)  # (B, k): s_0 has none
        of_s_0 = (self._first - 1) * x[:, :1] / scale
        x[:, :1].mul_(self._first)
        x[:, -1].fill_(-1)
        return torch.cat([of_s_0, x / scale], dim=1)

    def products(self, system: Tensor) -> Tensor:
        """Return the matrix from ``s_j^T v``, j <= k, to ``u_j^T v ||s_j||^2``."""
        k = system.shape[1]
        matrix = system.new_ones(k).diag_embed(1)[:-1]  # (k, k + 1)
        if k and not self._plain:
            matrix[0, 0], matrix[0, 1] = self._first - 1, self._first
        return matrix


class _LineSearch:
    """Step lengths ``t_k`` from a backtracking line search on ``||g||``."""

    def __init__(self, z0: Tensor, memory: int) -> None:
        batch = z0.shape[0]
        self._lengths = z0.new_ones(batch, memory + 1)  # t_j
        self._shifts = z0.new_zeros(batch, memory)  # b_j
        self._base = z0
        self._base_g = torch.zeros_like(z0)  # for a restart after a rejected point
        self._base_size = z0.new_full((batch,), torch.inf)
        self._rejected = torch.zeros(batch, dtype=torch.long, device=z0.device)

    def rejected(self) -> Tensor:
        return self._rejected

    def step(self, run: _BroydenIteration, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        k, size = run.count, torch.linalg.vector_norm(g, dim=1)
        length = self._lengths[:, k - 1]  # of the last slot after a restart; 1 at the start
        bound = (1 - _SUFFICIENT_DECREASE * length) * self._base_size
        # ~(size > bound) instead of size <= bound: a nan sample is accepted, there is no better.
        accepted = ~(size > bound) | (length <= _SHORTEST_STEP)
        column = accepted.unsqueeze(1)
        self._base = torch.where(column, z, self._base)
        self._base_g = torch.where(column, g, self._base_g)
        self._base_size = torch.where(accepted, size, self._base_size)
        self._rejected = self._rejected + ~accepted
        direction = self._direction_from_base(run, g, accepted) if k else self._base_g
        next_length = torch.where(accepted, 1, length / 2)
        self._lengths[:, k] = next_length
        return direction * next_length.unsqueeze(1), self._base

    def _direction_from_base(self, run: _BroydenIteration, g: Tensor, accepted: Tensor) -> Tensor:
        """Return ``-H_k g(base)``, which is ``s_{k-1} - H_k g(z)`` where z was rejected."""
        newest = run.count - 1
        self._shifts[:, newest] = self._lengths[:, newest] - 1
        direction = run.direction(g)  # -H_k g(z)
        self._shifts[:, newest].masked_fill_(~accepted, -1)  # u in terms of the returned direction
        rejected = (~accepted).unsqueeze(1).to(g.dtype)
        return torch.addcmul(direction, rejected, run.slots[:, newest])

    def overlaps(self, gram: Tensor) -> Tensor:
        k = gram.shape[1]
        return self._ratios(k) * gram[:, 1:] + self._shifts[:, : k - 1] * gram[:, :-1]

    def curvature(self, x: Tensor) -> Tensor:
        return 1 + self._lengths[:, x.shape[1] - 1] * x[:, -1]

    def weights(self, x: Tensor, denominator: Tensor) -> Tensor:
        k = x.shape[1]
        weights = F.pad(-self._shifts[:, :k] * x, (0, 1), value=1)  # (B, k + 1)
        weights[:, 1:-1] -= self._ratios(k) * x[:, :-1]
        return weights / denominator.unsqueeze(1)

    def products(self, system: Tensor) -> Tensor:
        k = system.shape[1]
        matrix = F.pad(self._shifts[:, :k].diag_embed(), (0, 1))
        return matrix + self._ratios(k + 1).diag_embed(1)[:, :-1]

    def _ratios(self, k: int) -> Tensor:
        """Return ``t_j / t_{j+1}`` of all steps but the newest, ``(B, k-1)``."""
        return self._lengths[:, : k - 1] / self._lengths[:, 1:k]
