"""Anderson acceleration."""

from dataclasses import dataclass

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping
from phantomgrad.solvers.iterative import Iteration, IterativeSolver


@dataclass(frozen=True, kw_only=True)
class Anderson(IterativeSolver):
    r"""Anderson acceleration with a regularised least-squares step.

    From the last ``memory`` iterates and their :math:`g_i = f(z_i) - z_i`,

    .. math::
        z_{t+1} = \sum_i \alpha_i (z_i + \beta g_i), \qquad
        \alpha = \arg\min_{\sum_i \alpha_i = 1}
            \big\|\sum_i \alpha_i g_i\big\|^2 + \mu \sum_i \alpha_i^2 \|g_i\|^2 .

    (Anderson, 1965; Walker and Ni, 2011). The regularisation is relative to each residual, so it
    has the same strength in all iterations. A sample whose system is singular nevertheless takes
    the damped fixed-point step.

    Args:
        memory: number of past iterates combined.
        damping: :math:`\beta`, the mixing factor, in (0, 1].
        regularization: :math:`\mu`.
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
    """The last ``memory`` pairs, in a ring buffer, and the normal equations of their ``g``.

    The equations are scaled to a unit diagonal; each iteration updates one row and column.
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
        self._update_equations(products.double(), slot)
        if used == 1:
            return self._mixed[:, slot].clone()  # nothing to combine yet
        weights = self._weights(used, slot).to(z.dtype)
        return torch.bmm(weights.unsqueeze(1), self._mixed[:, :used]).squeeze(1)

    def _update_equations(self, products: Tensor, slot: int) -> None:
        """Enter the products of all ``g`` with the newest one, which is in ``slot``."""
        used = products.shape[1]
        square = products[:, slot].clamp_min(torch.finfo(products.dtype).tiny)
        torch.rsqrt(square, out=self._scale[:, slot])
        scaled = products * self._scale[:, :used] * self._scale[:, slot : slot + 1]
        scaled[:, slot].add_(self._solver.regularization)
        self._system[:, slot, :used] = scaled
        self._system[:, :used, slot] = scaled

    def _weights(self, used: int, newest: int) -> Tensor:
        """Return alpha, ``(B, used)``; if the equations are singular, the newest pair alone."""
        scale = self._scale[:, :used]
        # solve_ex reports a singular system without raising or a host sync. The matrix is
        # symmetric; transposed it has the column-major order of LAPACK, and is not copied.
        raw, _ = torch.linalg.solve_ex(self._system[:, :used, :used].mT, scale.unsqueeze(2))
        weights = raw.squeeze(2) * scale
        weights = weights / weights.sum(dim=1, keepdim=True)
        usable = weights.abs().amax(dim=1, keepdim=True) < torch.inf  # False for nan
        return torch.where(usable, weights, self._plain[newest, :used])
