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

    Each iteration replaces one row and column of the equations. They need no scaling:
    elimination loses no digits where the ``g`` differ in size. Views of the buffers are made once:
    on small states, each view costs as much as a product.
    """

    def __init__(self, solver: Anderson, z0: Tensor) -> None:
        slots = min(solver.memory, solver.max_evaluations)
        batch, size = z0.shape
        self._solver = solver
        self._slots = slots
        self._cheap, self._direct = cheap_to_read(z0), readable(z0)
        self._count = 0
        g, mixed = z0.new_empty(batch, slots, size), z0.new_empty(batch, slots, size)
        system = z0.new_zeros(batch, slots, slots, dtype=widest_dtype(z0.device))
        self._buffers = g, mixed, system, system.new_ones(batch, slots, 1)
        self._g, self._mixed = g.unbind(dim=1), mixed.unbind(dim=1)

    def _use(self, slots: int) -> None:
        """Take so many slots into use: the operands of the products, and what they fill."""
        g, mixed, system, ones = self._buffers
        system = system[:, :slots, :slots]
        # The long operand goes last: with it first, the CPU takes up to eight times longer. The
        # system is symmetric, and transposed it has the column-major order of LAPACK.
        self._operands = g[:, :slots].mT, mixed[:, :slots], system.mT, ones[:, :slots]
        self._rows, self._columns = (torch.split(a, 1, dim=1) for a in (system, system.mT))

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        """Return the next iterate; see :data:`.Advance`."""
        slot = self._count % self._slots
        if slot == self._count:
            self._use(slot + 1)
        self._count += 1
        self._g[slot].copy_(g)
        if self._solver.damping == 1.0:
            self._mixed[slot].copy_(fz)
        else:
            write(
                torch.lerp, z, fz, self._solver.damping, out=self._mixed[slot], direct=self._direct
            )
        differences, mixed, system, ones = self._operands
        products = torch.bmm(g.unsqueeze(1), differences).to(system.dtype)  # (B, 1, used)
        products.select(2, slot).mul_(1 + self._solver.regularization)
        self._rows[slot].copy_(products)
        self._columns[slot].copy_(products)
        if len(self._rows) == 1:
            return self._mixed[slot].clone()  # nothing to combine yet
        weights = self._weights(system, ones, slot).to(z.dtype)
        return torch.bmm(weights.mT, mixed).squeeze(1)

    def _weights(self, system: Tensor, ones: Tensor, newest: int) -> Tensor:
        """Return alpha, ``(B, used, 1)``; if the equations are singular, the newest pair alone."""
        # solve_ex reports a singular system without raising or waiting for the device.
        weights: Tensor = torch.linalg.solve_ex(system, ones)[0]
        total = weights.sum(dim=1, keepdim=True)
        weights.div_(total)
        if self._cheap and all_in(total, torch.finfo(total.dtype).tiny, math.inf):
            return weights
        usable = weights.abs().amax(dim=1, keepdim=True) < torch.inf  # False for nan
        plain = torch.zeros_like(ones)
        plain[:, newest] = 1
        return torch.where(usable, weights, plain)
