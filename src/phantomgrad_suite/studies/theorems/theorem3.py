"""Theorem 3: how close SGD comes to a stationary point, by the error of its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor

from phantomgrad.diagnostics import estimated_gradient
from phantomgrad.gradients import GradientEstimator, NeumannPhantomGradient, UnrolledPhantomGradient
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, progress, rounded
from phantomgrad_suite.studies.synthetic import symmetric_matrix

_POINTS = 60  # of a curve
_RANK = 0.9
_TOLERANCE = 1e-11  # of the equilibria: largest entry of f(h) - h
_MOST_STEPS = 2000


@dataclass(frozen=True)
class SGDConvergence(Study):
    r"""SGD on a small regression with the exact gradient and with phantom gradients.

    .. math:: W_{n+1} = W_n - \eta_n g_n, \qquad \eta_n = \eta_0 / \sqrt n,

    with g the gradient, or a phantom gradient, of a minibatch; the left side of Theorem 3 is

    .. math:: L_N = \sum_{n \le N} \eta_n \|\nabla R(W_n)\|^2 \Big/ \sum_{n \le N} \eta_n

    with the exact gradient of the whole objective. All gradients see the same data, starts and
    minibatches. The proof adds :math:`G \epsilon` to the bound on :math:`L_N` of an exact gradient,
    with G the largest :math:`\|\nabla R(W_n)\|` and :math:`\epsilon` the largest
    :math:`\|g_n - g_n^{\text{exact}}\|`.
    """

    neumann: Sequence[tuple[int, float]] = ((1, 1.0), (2, 0.5), (5, 0.5), (10, 0.5))  # k, lambda
    unrolled: Sequence[tuple[int, float]] = ((1, 0.5), (2, 1.0), (3, 0.5), (5, 1.0))
    seeds: int = 4
    iterations: int = 1000  # N
    rate: float = 0.2  # eta_0
    size: int = 6
    data: int = 48
    batch: int = 16  # drawn with replacement
    noise: float = 0.1
    norm: float = 0.5  # of W at the start
    decay: float = 0.5

    def measure(self, seed: int, device: torch.device) -> Findings:
        generator = torch.Generator().manual_seed(seed)
        problem, start = self._problem(generator, device)
        npg = {("npg", k, x): NeumannPhantomGradient(k, x) for k, x in self.neumann}
        upg = {("upg", k, x): UnrolledPhantomGradient(k, x) for k, x in self.unrolled}
        names, estimators = [("exact", None, None), *npg, *upg], [*npg.values(), *upg.values()]
        weight = start.repeat(len(names), 1, 1, 1)  # (gradients, seeds, D, D)
        h, norm, history = torch.zeros_like(problem.u), 0.0, []
        rates = [self.rate / math.sqrt(n) for n in range(1, self.iterations + 1)]
        for rate in progress(rates):
            index = torch.randint(self.data, (self.seeds, self.batch), generator=generator)
            norm = max(norm, float(torch.linalg.matrix_norm(weight, ord=2).max()))
            h = problem.equilibrium(weight, h)
            batch, part = problem.minibatch(h, index.to(device))
            used, exact = batch.gradients(estimators, weight, part)
            biased, whole = problem.gradients(estimators, weight, h)
            differences = torch.stack([whole, used - exact, biased - whole])
            history.append(torch.linalg.matrix_norm(differences))  # (3, gradients, seeds)
            weight = weight - rate * used
        risk = problem.risk(weight, problem.equilibrium(weight, h))
        by_gradient = torch.stack(history, dim=2).transpose(0, 1).cpu()  # (gradients, 3, N, seeds)
        steps = torch.tensor(rates, dtype=torch.float64).unsqueeze(1)
        entries = [_entry(*found, steps) for found in zip(by_gradient, risk, strict=True)]
        numbers = {
            "steps": [n + 1 for n in log_spaced(self.iterations)],
            "gradients": [
                {"kind": kind, "steps": k, "damping": damping, **entry}
                for (kind, k, damping), entry in zip(names, entries, strict=True)
            ],
            "norm": norm,  # the largest spectral norm that any W had
        }
        return Findings(numbers, sgd_checks(entries, norm))

    def _problem(
        self, generator: torch.Generator, device: torch.device
    ) -> tuple[Regression, Tensor]:
        shape, size = (self.seeds, self.data, self.size), self.size
        u, e = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        teacher = torch.randn(self.seeds, size, size, generator=generator, dtype=torch.float64)
        y = torch.tanh(u @ (teacher / size**0.5).mT) + self.noise * e
        starts = [symmetric_matrix(size, self.norm, generator) for _ in range(self.seeds)]
        return Regression(u.to(device), y.to(device), self.decay), torch.stack(starts).to(device)


@dataclass(frozen=True)
class Regression:
    r"""Fit equilibria :math:`h = \tanh(W (h + u))` to targets, for several seeds at once.

    .. math:: R(W) = \frac{1}{2n} \sum_{i=1}^{n} |h_i^* - y_i|^2 + \frac{\mu}{2} \|W\|_F^2, \qquad
              y_i = \tanh(T u_i) + \text{noise}

    The weight decay :math:`\mu` keeps W a contraction (Remark 3 of the paper asks for some such
    term). With a teacher T that is not an equilibrium, it also keeps the errors from vanishing, so
    that a biased gradient has other stationary points. Inputs and targets are ``(seeds, n, D)``,
    weights W ``(gradients, seeds, D, D)``, equilibria h ``(gradients, seeds, n, D)``.
    """

    u: Tensor
    y: Tensor
    decay: float

    def minibatch(self, h: Tensor, index: Tensor) -> tuple[Regression, Tensor]:
        """Return the samples ``index``, ``(seeds, b)``, and their equilibria."""
        seeds = torch.arange(len(index), device=index.device).unsqueeze(1)
        batch = Regression(self.u[seeds, index], self.y[seeds, index], self.decay)
        return batch, h[:, seeds, index]

    def image(self, weight: Tensor, h: Tensor) -> Tensor:
        return torch.tanh((h + self.u) @ weight.mT)

    def equilibrium(self, weight: Tensor, h: Tensor) -> Tensor:
        """Return the equilibria by iteration from ``h``."""
        for _ in range(_MOST_STEPS):
            before, h = h, self.image(weight, h)
            if float((h - before).abs().max()) < _TOLERANCE:
                return h
        raise ValueError(
            f"the weights must stay contractions, but {_MOST_STEPS} steps reach no equilibrium: "
            "take a smaller rate or norm"
        )

    def gradients(
        self, estimators: Sequence[GradientEstimator], weight: Tensor, h: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Return :math:`\nabla R`, exactly (by LU) and then by each estimator, and all exactly."""
        slope = 1 - h.square()  # dF/dh = diag(slope) W
        eye = torch.eye(h.shape[-1], dtype=h.dtype, device=h.device)
        transposed = weight.mT.unsqueeze(2) * slope.unsqueeze(3)  # (gradients, seeds, n, D, D)
        adjoint = torch.linalg.solve(eye - transposed, h - self.y)
        exact = (slope * adjoint).mT @ (h + self.u) / h.shape[2] + self.decay * weight
        estimates = exact.clone()
        for i, estimator in enumerate(estimators, start=1):
            w, v = weight[i].clone().requires_grad_(), (h[i] - self.y) / h.shape[2]
            (estimate,) = estimated_gradient(partial(self.image, w), h[i], v, estimator, [w])
            estimates[i] = estimate + self.decay * weight[i]
        return estimates, exact

    def risk(self, weight: Tensor, h: Tensor) -> Tensor:
        misfit = (h - self.y).square().sum(dim=3).mean(dim=2)
        return 0.5 * (misfit + self.decay * weight.square().sum(dim=(2, 3)))


def _entry(history: Tensor, risk: Tensor, rates: Tensor) -> dict[str, Any]:
    """Return the numbers of one gradient: by seed, but ``curve`` and ``square`` by step.

    ``history`` has the norms of the exact gradient, of the error in a minibatch and of the bias.
    """
    norms, epsilon, bias = history
    square, half, shown = norms.square(), len(rates) // 2, log_spaced(len(rates))
    level = weighted_mean(square, rates)
    return {
        "epsilon": {"max": _plain(epsilon.amax(dim=0)), "mean": _plain(epsilon.mean(dim=0))},
        "level": _plain(level[-1]),
        "late": _plain(weighted_mean(square[half:], rates[half:])[-1]),
        "bias": _plain(bias.mean(dim=0)),
        "bound": _plain(norms.amax(dim=0)),
        "risk": _plain(risk),
        "curve": _plain(level.mean(dim=1)[shown]),
        "square": _plain(square.mean(dim=1)[shown]),
    }


def _plain(values: Tensor) -> list[float]:
    return [rounded(x, 6) for x in values.tolist()]


def sgd_checks(entries: Sequence[dict[str, Any]], norm: float) -> list[Check]:
    """Check that W stays a contraction and that the left side follows the error."""
    exact, *others = entries
    epsilon = [fmean(entry["epsilon"]["max"]) for entry in entries]
    level = [fmean(entry["level"]) for entry in entries]
    excess = [
        (above - floor) / (bound * error)
        for entry in others
        for above, floor, bound, error in zip(
            entry["level"], exact["level"], entry["bound"], entry["epsilon"]["max"], strict=True
        )
    ]
    correlation = float(spearmanr(epsilon, level).statistic)
    return [
        Check.below("largest spectral norm of W", norm, 1),
        Check.above("rank correlation of the left side with epsilon", correlation, _RANK),
        Check.below("left side less that of the exact gradient, over G epsilon", max(excess), 1),
    ]


def weighted_mean(values: Tensor, rates: Tensor) -> Tensor:
    """Return the running mean of ``values``, ``(steps, seeds)``, weighted by ``(steps, 1)``."""
    return (values * rates).cumsum(dim=0) / rates.cumsum(dim=0)


def log_spaced(count: int) -> list[int]:
    """Return indices below ``count``, evenly spaced on a log scale, with the last one."""
    places = torch.logspace(0, math.log10(count), _POINTS, dtype=torch.float64).round().long() - 1
    return sorted(set(places.clamp(0, count - 1).tolist()))
