"""Damped fixed-point (Picard) iteration, and the same for a fixed number of steps."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping
from phantomgrad.solvers.base import Map, Solution, Solver, check_start, evaluate, flat
from phantomgrad.solvers.iterative import Advance, IterativeSolver, damped

_CHECKED = 2  # evaluations; a map that returns the same memory is found at the second


@dataclass(frozen=True, kw_only=True)
class FixedPoint(IterativeSolver):
    r"""Damped fixed-point iteration.

    .. math:: z_{t+1} = \lambda f(z_t) + (1 - \lambda) z_t

    (Geng et al., 2021, eq. "damped-fpi"; Picard's iteration for :math:`\lambda = 1`.) It converges
    linearly where the Jacobian of the damped map has a spectral radius below one.

    Args:
        max_evaluations, tol, stop, norm, record_trace: see :class:`.IterativeSolver`.
        damping: :math:`\lambda`, in (0, 1]; 1 means no damping.
    """

    damping: float = 1.0

    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_damping(self.damping)

    def start(self, z0: Tensor) -> Advance:
        """Return the step, which needs no memory."""
        return lambda z, fz, g: damped(z, fz, self.damping)


@dataclass(frozen=True)
class Steps(Solver):
    r"""Exactly n damped applications, and the last iterate, converged or not.

    .. math:: z_{t+1} = \lambda f(z_t) + (1 - \lambda) z_t, \qquad t = 0, \dots, n - 1 .

    For models of fixed depth, such as recursive reasoners. A :class:`phantomgrad.DEQ` with this
    solver takes the steps of its gradient under ``torch.no_grad`` as well: ``Steps(n)`` with
    ``UnrolledPhantomGradient(k, 1.0)`` is n + k applications in training and in evaluation.

    In the :class:`Solution`, ``residual`` is that of the last state that was evaluated,
    :math:`\|f(z_{n-1}) - z_{n-1}\| / \|f(z_{n-1})\|`, and ``nan`` for n = 0; no sample counts
    as converged.

    A state of several tensors may have a counter of the steps in it, as a float.

    Args:
        n: number of applications, at least 0.
        damping: :math:`\lambda`, in (0, 1]; 1 means no damping.
    """

    n: int
    damping: float = 1.0

    differentiable: ClassVar[bool] = True
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least("n", self.n, 0)
        check_damping(self.damping)

    def solve(self, f: Map, z0: Tensor) -> Solution:
        """Return the state after n applications; see :meth:`Solver.solve`."""
        check_start(z0)
        z = at = fz = z0 if self.n else z0.clone()
        for step in range(self.n):
            call: Map = partial(evaluate, f) if step < _CHECKED else f
            at, fz = z, call(z).to(z0.dtype)
            z = damped(at, fz, self.damping)
        residual = self._residual(at.detach(), fz.detach())
        diverged = residual == torch.inf
        return Solution(
            z=z,
            residual=residual,
            evaluations=torch.full((z0.shape[0],), self.n, device=z0.device),
            converged=torch.zeros_like(diverged),
            diverged=diverged,
            tol=0.0,
        )

    def _residual(self, z: Tensor, fz: Tensor) -> Tensor:
        if self.n == 0:
            return z.new_full((z.shape[0],), torch.nan)
        wide = torch.float32 if z.dtype.itemsize < 4 else z.dtype
        fz = fz.to(wide)
        size, change = (torch.linalg.vector_norm(flat(x), dim=1) for x in (fz, fz - z.to(wide)))
        ratio: Tensor = change / (size + torch.finfo(wide).tiny)
        return ratio.masked_fill_(~(size < torch.inf), torch.inf)
