"""Damped fixed-point (Picard) iteration."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from phantomgrad.checks import check_damping
from phantomgrad.solvers.iterative import Iteration, IterativeSolver


@dataclass(frozen=True, kw_only=True)
class FixedPoint(IterativeSolver):
    r"""Damped fixed-point iteration.

    .. math:: z_{t+1} = \lambda f(z_t) + (1 - \lambda) z_t

    (Geng et al., 2021, eq. "damped-fpi"; Picard's iteration for :math:`\lambda = 1`.) It converges
    linearly where the Jacobian of the damped map has a spectral radius below one.

    Args:
        max_evaluations, tol, stop, norm, atol, record_trace: see :class:`.IterativeSolver`.
        damping: :math:`\lambda`, in (0, 1].
    """

    damping: float = 1.0

    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_damping(self.damping)

    def start(self, z0: Tensor) -> Iteration:
        """Return a run of the iteration, which needs no memory."""
        return _DampedSteps(self.damping)


class _DampedSteps(Iteration):
    def __init__(self, damping: float) -> None:
        self._damping = damping

    def advance(self, z: Tensor, fz: Tensor, g: Tensor) -> Tensor:
        return fz if self._damping == 1.0 else torch.lerp(z, fz, self._damping)
