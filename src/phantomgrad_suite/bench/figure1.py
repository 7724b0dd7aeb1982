"""The case of Figure 1: our study, and a straightforward script of the same computation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from phantomgrad.gradients import (
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import SyntheticCell
from phantomgrad.solvers import Broyden, FixedPoint
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.contest import OURS, PEER, Aim, Case, Contender, Run
from phantomgrad_suite.studies.figure1 import Precision, Setting
from phantomgrad_suite.studies.meters import Clock


def figure1_case(study: Precision) -> Case:
    """Return the case: every cosine of Figure 1, from the same random draws to the means."""

    def timed(work: Callable[[torch.device], object]) -> Callable[[Clock], Contender]:
        return lambda clock: lambda: Run({"total": clock.time(lambda: work(clock.device))})

    contenders = {
        OURS: timed(lambda device: study.measure(0, device)),
        PEER: timed(lambda device: script(study, 0, device)),
    }
    return Case(name="Figure 1", contenders=contenders, aims=(Aim("total", 3.0),))


def script(study: Precision, seed: int, device: torch.device) -> dict[str | Setting, float]:
    """Return the mean cosines, computed in the obvious way with torchdeq: a layer per estimator.

    So every UPG solves for the equilibrium again (to ``tol``, where ours takes all iterations) and
    every NPG starts its series anew; ours gains by sharing them. torchdeq does not offer NPG, which
    is this library's.
    """
    generator = torch.Generator().manual_seed(seed)
    cell = SyntheticCell(study.size, study.lipschitz, study.nonlinearity, generator).to(device)
    sums: dict[str | Setting, float] = defaultdict(float)
    for start in range(0, study.samples, study.batch):
        size = min(study.batch, study.samples - start)
        pairs = torch.randn(size, 2, study.rows, study.size, generator=generator)
        u, y = pairs.to(device).unbind(1)
        gradients = _gradients(study, cell, u, y)
        exact = gradients.pop("exact").flatten(1)
        for name, gradient in gradients.items():
            cosine = torch.cosine_similarity(gradient.flatten(1), exact, dim=1)
            sums[name] += float(cosine.sum())
    return {name: total / study.samples for name, total in sums.items()}


def _gradients(
    study: Precision, cell: SyntheticCell, u: Tensor, y: Tensor
) -> dict[str | Setting, Tensor]:
    u.requires_grad_()
    zero = torch.zeros_like(y)

    def f(h: Tensor) -> Tensor:
        return cell(h, u)  # type: ignore[no-any-return]

    def by_u(h: Tensor) -> Tensor:
        error = (h - y).square().mean(dim=(1, 2)).sum()
        return torch.autograd.grad(error, u)[0]

    forward = FixedPoint(max_evaluations=study.iterations, tol=study.tol)
    adjoint = Broyden(max_evaluations=study.broyden_iterations + 1, tol=0)
    implicit = peer.get_layer(forward, ImplicitGradient(solver=adjoint))
    h = zero
    for _ in range(study.iterations):
        h = f(h)
    found: dict[str | Setting, Tensor] = {"exact": by_u(h)}
    found["implicit"] = by_u(implicit(f, zero)[0][-1])
    with torch.no_grad():
        h = peer.PeerSolver(forward).solve(f, zero)
    for damping in study.dampings:
        for k in study.steps:
            unrolled = peer.get_layer(forward, UnrolledPhantomGradient(k, damping))
            found["UPG", k, damping] = by_u(unrolled(f, zero)[0][-1])
            found["NPG", k, damping] = by_u(NeumannPhantomGradient(k, damping).attach(f, h))
    return found
