"""Broyden's method in two passes over its memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.solvers.base import Iteration, Solver

_SUFFICIENT_DECREASE = 1e-4
_SHORTEST_STEP = 2.0**-7


@dataclass(frozen=True, kw_only=True)
class Broyden(Solver):
    r"""Broyden's "good" method with limited memory, sample by sample.

    With :math:`g(z) = f(z) - z`, :math:`H_0 = -I` (an estimate of the inverse Jacobian of g),
    direction :math:`d_k = -H_k g_k`, step :math:`s_k = t_k d_k` and the change
    :math:`y_k` of g along it,

    .. math:: H_{k+1} = H_k + \frac{(s_k - H_k y_k)\, s_k^\top H_k}{s_k^\top H_k y_k} .

    As a product, :math:`H_k = \prod_{j<k} (I + u_j s_j^\top)(-I)` with

    .. math:: u_j = (t_j\, d_{j+1} + b_j\, s_j) / \|s_j\|^2, \qquad b_j = t_j - 1 ,

    so every update lies in the span of the steps, and the steps are all that is stored: half the
    memory of the usual pairs (u, v). One iteration reads them twice: once for their products with
    the new residual and with the newest step, which extends their Gram matrix; once for the next
    direction. (Broyden, 1965.)

    Args:
        memory: steps kept before the method restarts from :math:`H_0`, with a plain fixed-point
            step; by default every step of the budget.
        line_search: refuse a trial point at which ``||g||`` does not decrease, and halve the next
            step of that sample. The refused point still updates H, with :math:`b_j = -1`, as
            :math:`-H_{j+1} g_j = s_j - H_{j+1} g(z_j + s_j)`. Trial points are ordinary
            evaluations: they count against ``max_evaluations``.
        first_step: :math:`t_0`, the length of the first step of a solve; all others are 1, also
            that behind a restart. The codes of MDEQ before 2021-03-20, and of the phantom
            gradient, start with -1, away from :math:`f(z_0)`. Not with ``line_search``, which
            chooses the lengths itself.
    """

    memory: int | None = None
    line_search: bool = False
    first_step: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            check_at_least("memory", self.memory, 1)
        if not math.isfinite(self.first_step) or self.first_step == 0:
            raise ValueError(f"first_step must be finite and not zero, got {self.first_step}")
        if self.line_search and self.first_step != 1:
            raise ValueError(
                f"first_step must be 1 where line_search chooses the lengths, got {self.first_step}"
            )

    def start(self, z0: Tensor) -> Iteration:
        """Return a run with room for ``memory`` steps."""
        usable = max(self.max_evaluations - 2, 1)
        memory = usable if self.memory is None else min(self.memory, usable)
        if self.line_search:
            return _SearchedSteps(z0, memory)
        if self.first_step != 1:
            return _UnitStepsBehindTheFirst(z0, memory, self.first_step)
        return _UnitSteps(z0, memory)


class _UnitSteps(Iteration):
    """Broyden's method with ``t_k = 1``.

    ``slots`` holds the steps ``s_0 .. s_{k-1}`` and, behind them, the current ``g``: one
    contiguous operand for both passes. The coefficients ``x`` of ``w = H_{k-1} g`` solve a unit
    lower triangular system, ``x_j - sum_{i<j} x_i m_ji / G_jj = -s_j^T g / G_jj``, in which
    ``G`` is the Gram matrix of the steps and ``m_ji = s_j^T u_i ||s_i||^2``.
    """

    def __init__(self, z0: Tensor, memory: int) -> None:
        batch, size = z0.shape
        self._memory = memory
        self._count = 0
        self._slots = z0.new_empty(batch, memory + 1, size)
        self._system = torch.eye(memory, dtype=z0.dtype, device=z0.device).repeat(batch, 1, 1)
        self._scale = z0.new_zeros(batch, memory)  # -1 / ||s_j||^2; 0 voids the update j

    def difference(self, z: Tensor, fz: Tensor) -> Tensor:
        if self._count > self._memory:
            self._count = 0
        return torch.sub(fz, z, out=self._slots[:, self._count])

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        step = self._direction(g)
        self._store(step)
        return step.add_(z)  # the slot has its own copy

    def _store(self, step: Tensor) -> None:
        self._slots[:, self._count].copy_(step)
        self._count += 1

    def _direction(self, g: Tensor) -> Tensor:
        """Return ``-H_k g``, ``(B, D)``."""
        k = self._count
        if k == 0:
            return g.clone()
        newest = k - 1
        # The long operand goes last: with it first, the CPU takes up to eight times longer.
        products = torch.bmm(self._slots[:, newest : k + 1], self._slots[:, :k].mT)  # (B, 2, k)
        gram, right = products.unbind(dim=1)
        torch.reciprocal(-gram[:, newest], out=self._scale[:, newest])
        row = self._system[:, newest, :newest]
        torch.mul(self._overlaps(gram), self._scale[:, newest:k], out=row)
        x = torch.linalg.solve_triangular(
            self._system[:, :k, :k],
            (right * self._scale[:, :k]).unsqueeze(2),
            upper=False,
            unitriangular=True,
        ).squeeze(2)
        weights = self._weights(x, self._denominator(x))
        last = self._slots[:, k + 1 - weights.shape[1] : k + 1]
        return torch.bmm(weights.unsqueeze(1), last).squeeze(1)

    def _overlaps(self, gram: Tensor) -> Tensor:
        """Return ``m_ji`` of the newest step j with all older i, ``(B, k-1)``."""
        return gram[:, 1:]

    def _denominator(self, x: Tensor) -> Tensor:
        """Return ``s^T H y / ||s||^2`` of the newest step; where it is no use, void the update."""
        newest = self._count - 1
        denominator = self._curvature(x)
        size = denominator.abs()
        useless = ~((size > torch.finfo(x.dtype).eps ** 0.5) & (size < torch.inf))  # nan is
        self._scale[:, newest].masked_fill_(useless, 0)
        self._system[:, newest, :newest].masked_fill_(useless.unsqueeze(1), 0)
        x[:, newest].masked_fill_(useless, 0)
        return denominator.masked_fill_(useless, 1)

    def _curvature(self, x: Tensor) -> Tensor:
        return 1 + x[:, -1]

    def _weights(self, x: Tensor, denominator: Tensor) -> Tensor:
        """Return the weights in ``-H_k g`` of the last slots: ``-x`` on the steps, 1 on ``g``."""
        x[:, -1].fill_(-1)
        return x / -denominator.unsqueeze(1)  # (B, k): s_0 has none


class _UnitStepsBehindTheFirst(_UnitSteps):
    """Broyden's method with a ``t_0`` of its own and ``t_k = 1`` behind it, until a restart.

    Only ``u_0 = (t_0 s_1 + b_0 s_0) / ||s_0||^2`` differs: the same two passes over the memory.
    """

    def __init__(self, z0: Tensor, memory: int, length: float) -> None:
        super().__init__(z0, memory)
        self._length = length  # t_0 of the steps in memory

    def difference(self, z: Tensor, fz: Tensor) -> Tensor:
        if self._count > self._memory:
            self._length = 1.0  # a restart takes a plain step
        return super().difference(z, fz)

    def _store(self, step: Tensor) -> None:
        if self._count == 0:
            step.mul_(self._length)
        super()._store(step)

    def _overlaps(self, gram: Tensor) -> Tensor:
        overlaps = super()._overlaps(gram)
        overlaps[:, :1].mul_(self._length).add_(gram[:, :1], alpha=self._length - 1)
        return overlaps

    def _curvature(self, x: Tensor) -> Tensor:
        return 1 + self._length * x[:, -1] if self._count == 1 else super()._curvature(x)

    def _weights(self, x: Tensor, denominator: Tensor) -> Tensor:
        of_s_0 = (self._length - 1) * x[:, :1]
        x[:, :1].mul_(self._length)
        return torch.cat([of_s_0 / -denominator.unsqueeze(1), super()._weights(x, denominator)], 1)


class _SearchedSteps(_UnitSteps):
    """Broyden's method with step lengths ``t_k`` from a backtracking line search."""

    def __init__(self, z0: Tensor, memory: int) -> None:
        super().__init__(z0, memory)
        batch = z0.shape[0]
        self._lengths = z0.new_ones(batch, memory + 1)  # t_j
        self._shifts = z0.new_zeros(batch, memory)  # b_j
        self._base = z0
        self._base_g = torch.zeros_like(z0)  # what a restart behind a refused point starts from
        self._base_size = z0.new_full((batch,), torch.inf)
        self._refusals = torch.zeros(batch, dtype=torch.long, device=z0.device)

    def rejected(self) -> Tensor:
        return self._refusals

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        k, size = self._count, torch.linalg.vector_norm(g, dim=1)
        length = self._lengths[:, k - 1]  # after a restart that of the last slot, else 1
        bound = (1 - _SUFFICIENT_DECREASE * length) * self._base_size
        # ~(size > bound) and not size <= bound: a sample that is nan has nothing to search for.
        accepted = ~(size > bound) | (length <= _SHORTEST_STEP)
        column = accepted.unsqueeze(1)
        self._base = torch.where(column, z, self._base)
        self._base_g = torch.where(column, g, self._base_g)
        self._base_size = torch.where(accepted, size, self._base_size)
        self._refusals += ~accepted
        direction = self._direction_from_base(g, accepted) if k else self._base_g
        next_length = torch.where(accepted, 1, length / 2)
        self._lengths[:, k] = next_length
        step = direction * next_length.unsqueeze(1)
        self._store(step)
        return self._base + step

    def _direction_from_base(self, g: Tensor, accepted: Tensor) -> Tensor:
        """Return ``-H_k g(base)``; where z was refused that is ``s_{k-1} - H_k g(z)``."""
        newest = self._count - 1
        self._shifts[:, newest] = self._lengths[:, newest] - 1
        direction = self._direction(g)  # -H_k g(z)
        self._shifts[:, newest].masked_fill_(~accepted, -1)  # u in terms of the returned direction
        refused = (~accepted).unsqueeze(1).to(g.dtype)
        return direction.addcmul_(refused, self._slots[:, newest])

    def _overlaps(self, gram: Tensor) -> Tensor:
        shifts = self._shifts[:, : self._count - 1]
        return self._ratios() * gram[:, 1:] + shifts * gram[:, :-1]

    def _curvature(self, x: Tensor) -> Tensor:
        return 1 + self._lengths[:, self._count - 1] * x[:, -1]

    def _weights(self, x: Tensor, denominator: Tensor) -> Tensor:
        weights = F.pad(-self._shifts[:, : self._count] * x, (0, 1), value=1)  # (B, k + 1)
        weights[:, 1:-1] -= self._ratios() * x[:, :-1]
        return weights / denominator.unsqueeze(1)

    def _ratios(self) -> Tensor:
        """Return ``t_j / t_{j+1}`` of all steps but the newest, ``(B, k-1)``."""
        k = self._count
        return self._lengths[:, : k - 1] / self._lengths[:, 1:k]
