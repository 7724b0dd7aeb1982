"""A small regression by equilibria of which every gradient can be computed exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.synthetic import symmetric_matrix

_TOLERANCE = 1e-11  # of the equilibria: largest entry of f(h) - h
_MOST_STEPS = 2000


@dataclass(frozen=True)
class Regression:
    r"""Fit equilibria :math:`h = \tanh(W (h + u))` to targets, for several runs side by side.

    .. math:: R(W) = \frac{1}{2n} \sum_{i=1}^{n} |h_i^* - y_i|^2 + \frac{\mu}{2} \|W\|_F^2, \qquad
              y_i = \tanh(T u_i) + \text{noise}

    The weight decay keeps W a contraction (Remark 3 of the paper asks for some such term) and,
    with a teacher that is no equilibrium, keeps the errors :math:`h_i - y_i` from vanishing: a
    gradient that is biased has its stationary points elsewhere.

    Attributes:
        u: inputs, ``(runs, n, D)``.
        y: targets, ``(runs, n, D)``.
        start: where W starts, ``(runs, D, D)``.
        decay: :math:`\mu`.
    """

    u: Tensor
    y: Tensor
    start: Tensor
    decay: float

    def to(self, device: torch.device) -> Regression:
        """Return a copy on another device."""
        u, y, start = (x.to(device) for x in (self.u, self.y, self.start))
        return Regression(u, y, start, self.decay)

    def repeated(self, times: int) -> Regression:
        """Return the same runs several times over."""
        u, y, start = (x.repeat(times, 1, 1) for x in (self.u, self.y, self.start))
        return Regression(u, y, start, self.decay)

    def parts(self, count: int) -> list[Regression]:
        """Return ``count`` equal groups of runs."""
        groups = zip(*(x.chunk(count) for x in (self.u, self.y, self.start)), strict=True)
        return [Regression(u, y, start, self.decay) for u, y, start in groups]

    def batch(self, index: Tensor) -> Regression:
        """Return the samples of a minibatch, ``index`` of shape ``(runs, b)``."""
        return replace(self, u=rows(self.u, index), y=rows(self.y, index))

    def equilibrium(self, weight: Tensor, h: Tensor) -> Tensor:
        """Return the equilibria, ``(runs, n, D)``, by iteration from ``h``.

        Raises:
            ValueError: the iteration does not converge; W has left the contractions.
        """
        for _ in range(_MOST_STEPS):
            before, h = h, torch.tanh((h + self.u) @ weight.mT)
            if float((h - before).abs().max()) < _TOLERANCE:
                return h
        raise ValueError(
            f"the weights must stay contractions, but {_MOST_STEPS} steps reach no equilibrium: "
            "take a smaller rate or norm"
        )

    def exact_gradient(self, weight: Tensor, h: Tensor) -> Tensor:
        r"""Return :math:`\nabla R` of each run, ``(runs, D, D)``, at equilibria ``h``, by LU."""
        slope = 1 - h.square()  # (runs, n, D); the Jacobian by h is diag(slope) W
        eye = torch.eye(h.shape[2], dtype=h.dtype, device=h.device)
        transposed = weight.mT.unsqueeze(1) * slope.unsqueeze(2)  # (runs, n, D, D)
        adjoint: Tensor = torch.linalg.solve(eye - transposed, h - self.y)
        return (slope * adjoint).mT @ (h + self.u) / h.shape[1] + self.decay * weight

    def gradient(self, estimator: GradientEstimator, weight: Tensor, h: Tensor) -> Tensor:
        """Return what ``estimator`` takes for it, ``(runs, D, D)``."""
        weight = weight.detach().requires_grad_()
        attached = estimator.attach(lambda h: torch.tanh((h + self.u) @ weight.mT), h)
        cotangent = (h - self.y) / h.shape[1]
        (gradient,) = torch.autograd.grad(attached, weight, cotangent)
        return gradient + self.decay * weight.detach()

    def risk(self, weight: Tensor, h: Tensor) -> Tensor:
        """Return R of each run, ``(runs,)``, at equilibria ``h``."""
        misfit = (h - self.y).square().sum(dim=2).mean(dim=1)
        return 0.5 * (misfit + self.decay * weight.square().sum(dim=(1, 2)))


def drawn_regression(
    shape: tuple[int, int, int],
    *,
    noise: float,
    norm: float,
    decay: float,
    generator: torch.Generator,
) -> Regression:
    """Draw data, teacher and start, anew for each run.

    Args:
        shape: runs, samples of the data set, D.
        noise: standard deviation of that of the targets.
        norm: spectral norm of W at the start.
        decay: see :class:`Regression`.
        generator: of every draw.
    """
    runs, _, size = shape
    u, e = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    teacher = torch.randn(runs, size, size, generator=generator, dtype=torch.float64)
    y = torch.tanh(u @ (teacher / size**0.5).mT) + noise * e
    start = torch.stack([symmetric_matrix(size, norm, generator) for _ in range(runs)])
    return Regression(u, y, start, decay)


def rows(x: Tensor, index: Tensor) -> Tensor:
    """Return the samples ``index``, ``(runs, b)``, of ``x``, ``(runs, n, D)``."""
    return x.gather(1, index.unsqueeze(2).expand(-1, -1, x.shape[2]))
