"""Damped fixed-point (Picard) iteration, and the same for a given number of steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping, check_not_negative
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
class LogNormalPoissonDepth:
    r"""A number of steps with a heavy tail, drawn at each call (Geiping et al., 2025).

    .. math:: n \sim \mathrm{Poisson}(e^\tau) + 1, \qquad
              \tau \sim \mathcal{N}\big(\log r - \tfrac{1}{2} \sigma^2, \, \sigma^2\big) .

    The mean of n is r + 1, not r: ``LogNormalPoissonDepth(7)`` takes 8 steps on average. The source
    ("Scaling up test-time compute with latent reasoning") has r = 32 and :math:`\sigma = 1/2`;
    there n counts the recorded steps as well, here those of the solver alone.

    Args:
        mean: r, the mean of the Poisson variable, above 0: one less than that of n.
        sigma: :math:`\sigma`.
    """

    mean: float
    sigma: float = 0.5

    def __post_init__(self) -> None:
        check_not_negative("mean", self.mean)
        check_not_negative("sigma", self.sigma)
        if not self.mean:
            raise ValueError("mean must be above 0, got 0")

    def __call__(self) -> int:
        """Return a number drawn by torch's generator on the CPU."""
        normal = torch.randn((), dtype=torch.float64, device="cpu")
        rate = torch.exp(math.log(self.mean) - self.sigma**2 / 2 + self.sigma * normal)
        return int(torch.poisson(rate)) + 1


@dataclass(frozen=True)
class Steps(Solver):
    r"""Exactly n damped applications, and the last iterate, converged or not.

    .. math:: z_{t+1} = \lambda f(z_t) + (1 - \lambda) z_t, \qquad t = 0, \dots, n - 1 .

    For models of fixed depth, such as recursive reasoners. A :class:`phantomgrad.DEQ` with this
    solver takes the steps of its gradient under ``torch.no_grad`` as well: ``Steps(n)`` with
    ``UnrolledPhantomGradient(k, 1.0)`` is n + k applications in training and in evaluation, unless
    ``depth`` draws another n.

    In the :class:`Solution`, ``residual`` is that of the last state that was evaluated,
    :math:`\|f(z_{n-1}) - z_{n-1}\| / \|f(z_{n-1})\|`, and ``nan`` for n = 0; no sample counts
    as converged.

    A state of several tensors may have a counter of the steps in it, as a float, if nothing is
    damped.

    Trained at one depth, a model may fail at any other. With ``depth``, a layer in training mode
    draws n anew in each pass, by torch's generator on the CPU: processes with equal seeds draw
    alike, and a checkpoint of its state continues the draws. In evaluation n stays as it is.

    Args:
        n: number of applications, at least 0.
        damping: :math:`\lambda`, in (0, 1]; 1 means no damping.
        depth: returns n for a pass in training, such as
            ``phantomgrad.solvers.LogNormalPoissonDepth(n - 1)``, of mean n. ``None`` for n itself.
    """

    n: int
    damping: float = 1.0
    depth: Callable[[], int] | None = None

    differentiable: ClassVar[bool] = True
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least("n", self.n, 0)
        check_damping(self.damping)
        if not (self.depth is None or callable(self.depth)):
            raise ValueError(f"depth must return a number of steps when called, got {self.depth!r}")

    def for_training(self) -> "Steps":
        """Return the steps of one pass in training."""
        if self.depth is None:
            return self
        if torch.compiler.is_compiling():
            raise RuntimeError("fullgraph=True cannot draw the depth of Steps: set depth=None")
        return replace(self, n=self.depth(), depth=None)

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
