"""Anderson acceleration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping
from phantomgrad.solvers.base import Iteration, Solver


@dataclass(frozen=True, kw_only=True)
class Anderson(Solver):
    r"""Anderson acceleration with a regularised least-squares step.

    From the last ``memory`` iterates and their :math:`g_i = f(z_i) - z_i`,

    .. math::
        z_{t+1} = \sum_i \alpha_i (z_i + \beta g_i), \qquad
        \alpha = \arg\min_{\sum_i \alpha_i = 1}
            \big\|\sum_i \alpha_i g_i\big\|^2 + \mu \sum_i \alpha_i^2 \|g_i\|^2 .

    The regularisation is relative to each residual, so it means the same at the first iteration
    and at the last; a system that is singular all the same falls back, sample by sample, to the
    damped fixed-point step. (Anderson, 1965; Walker and Ni, 2011.)

    Args:
        memory: number of past iterates combined.
        damping: :math:`\beta`, the mixing factor, in (0, 1].
        regularization: :math:`\mu`, not negative.
    """

    memory: int = 6
    damping: float = 1.0
    regularization: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("memory", self.memory, 1)
        check_damping(self.damping)
        if not self.regularization >= 0:
            raise ValueError(f"regularization must not be negative, got {self.regularization}")

    def start(self, z0: Tensor) -> Iteration:
        """Return a run with room for ``memory`` iterates."""
        return _Window(self, z0)


class _Window(Iteration):
    """The last ``memory`` pairs, in a ring, and the normal equations of their ``g``.

    The equations are scaled to a unit diagonal and updated by a row and a column, never rebuilt.
    """

    def __init__(self, solver: Anderson, z0: Tensor) -> None:
        slots = min(solver.memory, solver.max_evaluations)
        batch, size = z0.shape
        self._solver = solver
        self._slots = slots
        self._count = 0
        self._g = z0.new_empty(batch, slots, size)
        self._mixed = z0.new_empty(batch, slots, size)
        self._system = z0.new_zeros(batch, slots, slots, dtype=torch.float64)
        self._scale = z0.new_zeros(batch, slots, dtype=torch.float64)  # 1 / ||g_i||
        self._plain = torch.eye(slots, dtype=torch.float64, device=z0.device)

    def difference(self, z: Tensor, fz: Tensor) -> Tensor:
        return torch.sub(fz, z, out=self._g[:, self._count % self._slots])

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        slot, used = self._count % self._slots, min(self._count + 1, self._slots)
        self._count += 1
        if self._solver.damping == 1.0:
            self._mixed[:, slot].copy_(fz)
        else:
            torch.lerp(z, fz, self._solver.damping, out=self._mixed[:, slot])
        # The long operand goes last: with it first, the CPU takes up to eight times longer.
        products = torch.bmm(g.unsqueeze(1), self._g[:, :used].mT).squeeze(1)  # (B, used)
        self._enter(products.double(), slot)
        if used == 1:
            return self._mixed[:, slot].clone()  # there is nothing to combine
        weights = self._weights(used, slot).to(z.dtype)
        return torch.bmm(weights.unsqueeze(1), self._mixed[:, :used]).squeeze(1)

    def _enter(self, products: Tensor, slot: int) -> None:
        """Update the equations with the products of the newest ``g``, which is in ``slot``."""
        used = products.shape[1]
        square = products[:, slot].clamp_min(torch.finfo(products.dtype).tiny)
        torch.rsqrt(square, out=self._scale[:, slot])
        scaled = products * self._scale[:, :used] * self._scale[:, slot : slot + 1]
        scaled[:, slot].add_(self._solver.regularization)
        self._system[:, slot, :used] = scaled
        self._system[:, :used, slot] = scaled

    def _weights(self, used: int, newest: int) -> Tensor:
        """Return alpha, ``(B, used)``; where the equations are singular, the newest pair alone."""
        scale = self._scale[:, :used]
        # solve_ex reports a singular system instead of raising, and needs no host sync. The
        # matrix is symmetric; by columns, as LAPACK wants it, it need not be copied.
        raw, _ = torch.linalg.solve_ex(self._system[:, :used, :used].mT, scale.unsqueeze(2))
        weights = raw.squeeze(2) * scale
        weights = weights / weights.sum(dim=1, keepdim=True)
        usable = weights.abs().amax(dim=1, keepdim=True) < torch.inf  # False for nan
        return torch.where(usable, weights, self._plain[newest, :used])
