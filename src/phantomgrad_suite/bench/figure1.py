"""The case of Figure 1: its whole computation, and a straightforward script of the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from phantomgrad.models import SyntheticCell
from phantomgrad.solvers import Broyden, FixedPoint
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.contest import OURS, PEER, Aim, Case, Contender, Run
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.figure1 import Precision, Setting

_FIGURE_AIMS = (Aim("total", 3.0),)


@dataclass(frozen=True, kw_only=True)
class FigureCase(Case):
    """Every cosine of Figure 1, from the random draws to the means.

    Args:
        name: of the case.
        study: the setting; both sides draw the same numbers.
        aims: what is expected.
    """

    name: str = "Figure 1"
    study: Precision = field(default_factory=lambda: Precision(samples=100))
    aims: tuple[Aim, ...] = _FIGURE_AIMS

    def contenders(self, device: torch.device, with_peer: bool) -> dict[str, Contender]:
        """Return our study and the script."""
        found = {OURS: _timed(lambda: self.study.measure(0, device))}
        if with_peer:
            found[PEER] = _timed(lambda: script(self.study, 0, device))
        return found


def script(study: Precision, seed: int, device: torch.device) -> dict[str | Setting, float]:
    """Return the mean cosines, computed as one would with the peer: a layer for each estimator.

    So every UPG solves for the equilibrium again (to ``tol``, where ours takes all iterations), and
    every NPG begins its series anew: what ours gains is to share them. Backpropagation through the
    iterations and NPG, which the peer does not offer, are loops.
    """
    generator = torch.Generator().manual_seed(seed)
    cell = SyntheticCell(study.size, study.lipschitz, study.nonlinearity, generator).to(device)
    sums: dict[str | Setting, float] = {}
    for start in range(0, study.samples, study.batch):
        size = min(study.batch, study.samples - start)
        pairs = torch.randn(size, 2, study.rows, study.size, generator=generator)
        u, y = pairs.to(device).unbind(1)
        gradients = _gradients(study, cell.weight, u, y)
        exact = gradients.pop("exact").flatten(1)
        for name, gradient in gradients.items():
            cosine = torch.cosine_similarity(gradient.flatten(1), exact, dim=1)
            sums[name] = sums.get(name, 0.0) + float(cosine.sum())
    return {name: total / study.samples for name, total in sums.items()}


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "linear": lambda x: x,
}


def _gradients(
    study: Precision, weight: Tensor, u: Tensor, y: Tensor
) -> dict[str | Setting, Tensor]:
    u.requires_grad_()
    sigma, zero = _ACTIVATIONS[study.nonlinearity], torch.zeros_like(y)

    def f(h: Tensor) -> Tensor:
        return sigma((h + u) @ weight.T)

    def by_u(h: Tensor) -> Tensor:
        error = (h - y).square().mean(dim=(1, 2)).sum()
        return torch.autograd.grad(error, u)[0]

    forward = FixedPoint(max_evaluations=study.iterations, tol=study.tol)
    adjoint = Broyden(max_evaluations=study.broyden_iterations + 1, tol=0)
    found: dict[str | Setting, Tensor] = {
        "exact": by_u(_iterate(f, zero, study)),
        "implicit": by_u(peer.layer(forward, peer.implicit(adjoint))(f, zero)[0][-1]),
    }
    with torch.no_grad():
        h = peer.solve(forward, f, zero)
    for damping in study.dampings:
        for k in study.steps:
            unrolled = peer.layer(forward, peer.unrolled(k, damping))
            found["UPG", k, damping] = by_u(unrolled(f, zero)[0][-1])
            found["NPG", k, damping] = _neumann(f, h, u, y, k, damping)
    return found


def _iterate(f: Callable[[Tensor], Tensor], h: Tensor, study: Precision) -> Tensor:
    for _ in range(study.iterations):
        h = f(h)
    return h


def _neumann(
    f: Callable[[Tensor], Tensor], h: Tensor, u: Tensor, y: Tensor, k: int, damping: float
) -> Tensor:
    """Return NPG as the paper's listing computes it, but for its second factor of lambda."""
    h = h.detach().requires_grad_()
    damped = (1 - damping) * h + damping * f(h)
    v = 2 * (h.detach() - y) / y[0].numel()
    total = v
    for _ in range(k - 1):
        total = v + torch.autograd.grad(damped, h, total, retain_graph=True)[0]
    return torch.autograd.grad(damped, u, total)[0]


def _timed(work: Callable[[], object]) -> Contender:
    def run(clock: Clock) -> Run:
        start = clock.mark()
        work()
        return Run({"total": clock.seconds(start, clock.mark())}, 0)

    return run
