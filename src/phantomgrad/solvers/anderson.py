"""Anderson acceleration."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping, check_not_negative
from phantomgrad.context import cheap_to_read, readable
from phantomgrad.precision import widest_dtype
from phantomgrad.solvers.iterative import Advance, IterativeSolver, all_in, write


@dataclass(frozen=True, kw_only=True)
class Anderson(IterativeSolver):
    r"""Anderson acceleration with a regularised least-squares step.

    From the last ``memory`` iterates and their :math:`g_i = f(z_i) - z_i`,

    .. math::
        z_{t+1} = \sum_i \alpha_i (z_i + \beta g_i), \qquad
        \alpha = \arg\min_{\sum_i \alpha_i = 1}
            \big\|\sum_i \alpha_i g_i\big\|^2 + \mu \sum_i \alpha_i^2 \|g_i\|^2 .

    (Anderson, 1965; Walker and Ni, 2011). The regularisation is relative to the size of each
    :math:`g_i`, so it has the same strength in all iterations. If the equations of a sample are
    singular in spite of it, the sample takes the damped fixed-point step.

    Args:
        max_evaluations, tol, stop, norm, record_trace: see :class:`.IterativeSolver`.
        memory: number of past iterates combined.
        damping: :math:`\beta`, the mixing factor, in (0, 1]; 1 means no damping.
        regularization: :math:`\mu`.
    """

    memory: int = 6
    damping: float = 1.0
    regularization: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("memory", self.memory, 1)
        check_damping(self.damping)
        check_not_negative("regularization", self.regularization)

    def start(self, z0: Tensor) -> Advance:
        """Return the steps of a new solve, with room for ``memory`` iterates."""
        return _Window(self, z0).advance


class _Window:
    """The last ``memory`` pairs, in a ring buffer, and the normal equations of their ``g``.

    The equations are scaled to a unit diagonal; each iteration updates one row and column. Vectors
    are kept as ``(B, 1, n)``, and views of the buffers are made once: on small states, each view
    costs as much as a product.
    """

    def __init__(self, solver: Anderson, z0: Tensor) -> None:
        slots = min(solver.memory, solver.max_evaluations)
        batch, size = z0.shape
        self._solver = solver
        self._slots = slots
        self._cheap, self._direct = cheap_to_read(z0), readable(z0)
        self._count = 0
        g, mixed = z0.new_empty(batch, slots, size), z0.new_empty(batch, slots, size)
        wide = widest_dtype(z0.device)
        self._tiny = torch.finfo(wide).tiny
        system = z0.new_zeros(batch, slots, slots, dtype=wide)
        scale = z0.new_zeros(batch, 1, slots, dtype=wide)  # 1 / ||g_i||
        self._plain = torch.eye(slots, dtype=wide, device=z0.device)
        self._ridge = solver.regularization * self._plain
        self._buffers = g, mixed, scale, system
        self._used: tuple[Tensor, ...] = ()
        self._g, self._mixed = g.unbind(dim=1), mixed.unbind(dim=1)
        self._own = torch.split(scale, 1, dim=2)
        self._rows, self._columns = (torch.split(a, 1, dim=1) for a in (system, system.mT))

    def _first(self, used: int) -> tuple[Tensor, ...]:
        """Return the first slots of the buffers, as the operands of the products."""
        g, mixed, scale, system = self._buffers
        # The long operand goes last: with it first, the CPU takes up to eight times longer. The
        # system is symmetric; transposed it has the column-major order of LAPACK, and is not
        # copied.
        scale = scale[:, :, :used]
        ridge = self._ridge[:used, :used]
        return g[:, :used].mT, mixed[:, :used], scale, scale.mT, system[:, :used, :used].mT, ridge

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        """Return the next iterate; see :data:`.Advance`."""
        slot, used = self._count % self._slots, min(self._count + 1, self._slots)
        if used > self._count:
            self._used = self._first(used)
        self._count += 1
        self._g[slot].copy_(g)
        if self._solver.damping == 1.0:
            self._mixed[slot].copy_(fz)
        else:
            write(
                torch.lerp, z, fz, self._solver.damping, out=self._mixed[slot], direct=self._direct
            )
        differences, mixed, *_ = self._used
        products = torch.bmm(g.unsqueeze(1), differences)  # (B, 1, used)
        self._update_equations(products.to(self._plain.dtype), slot)
        if used == 1:
            return self._mixed[slot].clone()  # nothing to combine yet
        weights = self._weights(slot).to(z.dtype)
        return torch.bmm(weights.mT, mixed).squeeze(1)

    def _update_equations(self, products: Tensor, slot: int) -> None:
        """Enter the products of all ``g`` with the newest one, which is in ``slot``."""
        own, used = self._own[slot], products.shape[2]
        square = products[:, :, slot : slot + 1].clamp_min(self._tiny)
        write(torch.rsqrt, square, out=own, direct=self._direct)
        scaled = products.mul_(self._used[2]).mul_(own)
        row, column = self._rows[slot], self._columns[slot]
        full = used == self._slots
        (row if full else row[:, :, :used]).copy_(scaled)
        (column if full else column[:, :, :used]).copy_(scaled)

    def _weights(self, newest: int) -> Tensor:
        """Return alpha, ``(B, used, 1)``; if the equations are singular, the newest pair alone."""
        *_, scale, system, ridge = self._used
        # solve_ex reports a singular system without raising or waiting for the device.
        weights: Tensor = torch.linalg.solve_ex(system + ridge, scale)[0].mul_(scale)
        total = weights.sum(dim=1, keepdim=True)
        weights.div_(total)
        if self._cheap and all_in(total, self._tiny, math.inf):
            return weights
        usable = weights.abs().amax(dim=1, keepdim=True) < torch.inf  # False for nan
        plain = self._plain[newest, : weights.shape[1]].unsqueeze(1)
        return torch.where(usable, weights, plain)
