"""Figure 1: how precise the phantom gradient is in the synthetic setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from typing import Any

import torch
from torch import Tensor

from phantomgrad.gradients import ImplicitGradient
from phantomgrad.gradients.phantom import damped_steps
from phantomgrad.jacobian import Linearization
from phantomgrad.models.synthetic import SyntheticCell
from phantomgrad.nn.linear import Nonlinearity
from phantomgrad.solvers import Broyden, Map
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, Track, distribution, silently

Setting = tuple[str, int, float]
"""Form (``NPG`` or ``UPG``), k and lambda."""


@dataclass(frozen=True, kw_only=True)
class Precision(Study):
    r"""Cosine similarity of NPG and UPG to the exact gradient (Geng et al., 2021, Figure 1).

    For random pairs (u, y) of ``N x D`` standard normal numbers, :math:`h^* = F(h^* + u)` is found
    by fixed-point iteration from zero. Every estimator then gives the gradient of the mean squared
    error between :math:`h^*` and y with respect to u. The exact gradient is computed twice: by
    backpropagation through all iterations, which is the reference, and by implicit differentiation
    with Broyden's method.

    Numbers: distributions of the ``agreement`` (cosine) of the two exact gradients and of the
    ``residual`` of :math:`h^*`; for each of ``estimates``, those of its cosine to the exact
    gradient over ``states``, ``(N, D)``, and ``rows`` (the paper does not say which is a sample),
    and of ``norm_ratio``, its norm over the exact one.

    Args (see :class:`Study` for the others):
        iterations: of the fixed-point iteration. Fewer would do for :math:`h^*`, but the gradient
            through the iterations converges more slowly.
        tol: required relative error of :math:`h^*`.
        broyden_iterations: of the adjoint solve.
        batch: pairs computed at once.
    """

    nonlinearity: Nonlinearity = "tanh"
    lipschitz: float = 0.9
    size: int = 128
    rows: int = 32
    samples: int = 50_000
    steps: Sequence[int] = (1, 2, 3, 5, 7, 10)
    dampings: Sequence[float] = (0.5, 1.0)
    iterations: int = 100
    tol: float = 1e-5
    broyden_iterations: int = 20
    batch: int = 50

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure every pair."""
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, self.lipschitz, self.nonlinearity, generator).to(device)
        values: dict[Any, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        batches = [min(self.batch, self.samples - i) for i in range(0, self.samples, self.batch)]
        for size in track(batches, f"batches of {self.batch} samples"):
            # Pair after pair, so that the draws do not depend on the batch.
            pairs = torch.randn(size, 2, self.rows, self.size, generator=generator)
            u, y = pairs.transpose(0, 1).contiguous().to(device)
            for name, found in _compared(self.gradients(cell, u, y)):
                for quantity, batch in found.items():
                    values[name][quantity].append(batch.flatten())
        return self._findings(
            {
                name: {k: distribution(torch.cat(parts)) for k, parts in quantities.items()}
                for name, quantities in values.items()
            }
        )

    def gradients(
        self, cell: SyntheticCell, u: Tensor, y: Tensor
    ) -> Iterator[tuple[str | Setting, Tensor]]:
        """Yield every gradient by its name, ``exact`` first, and the ``residual`` of the state.

        Inputs ``u`` and targets ``y`` are ``(B, N, D)``.
        """
        f: Map = partial(cell, u=u.requires_grad_())

        def pull(h: Tensor) -> Tensor:
            cotangent = (h.detach() - y) * (2 / (self.rows * self.size))
            return torch.autograd.grad(h, u, cotangent, retain_graph=True)[0]

        *_, end = damped_steps(f, torch.zeros_like(u), self.iterations, damping=1.0)
        yield "exact", pull(end)
        z = end.detach()
        with torch.no_grad():
            error, size = (torch.linalg.vector_norm(x, dim=(1, 2)) for x in (z - f(z), z))
        yield "residual", error / size
        adjoint = Broyden(max_evaluations=self.broyden_iterations + 1, tol=0)
        yield "implicit", pull(ImplicitGradient(solver=adjoint).attach(f, z))
        v = 2 * (z - y) / (self.rows * self.size)
        for damping in self.dampings:
            paths = {
                "UPG": map(pull, damped_steps(f, z, max(self.steps), damping)),
                "NPG": _neumann_path(f, z, u, v, damping),
            }
            for form, path in paths.items():
                for k, gradient in enumerate(islice(path, max(self.steps)), start=1):
                    if k in self.steps:
                        yield (form, k, damping), gradient

    def _findings(self, found: dict[Any, dict[str, Any]]) -> Findings:
        agreement, residual = found.pop("implicit")["states"], found.pop("residual")["states"]
        estimates = [
            {"form": form, "steps": steps, "damping": damping, **found[form, steps, damping]}
            for form, steps, damping in sorted(found)
        ]
        least = agreement["percentiles"][0]
        checks = [
            Check.above("smallest cosine between the two exact gradients", least, 0.9999),
            Check.below("largest relative error of h*", residual["percentiles"][-1], self.tol),
            *conclusions({key: found[key]["states"]["mean"] for key in found}),
        ]
        return Findings(
            {"exact": {"agreement": agreement, "residual": residual}, "estimates": estimates},
            checks,
            f"the two exact gradients agree to a cosine of {least:.7f}",
        )


def _neumann_path(f: Map, z: Tensor, u: Tensor, v: Tensor, damping: float) -> Iterator[Tensor]:
    """Yield NPG by u for k = 1, 2, ..., from the partial sums of one series."""
    at, partial_sum = Linearization(f, z), v
    while True:
        by_z, by_u = at.vjps(partial_sum, u)
        yield damping * by_u
        partial_sum = torch.lerp(partial_sum, by_z, damping) + v


def _compared(
    gradients: Iterator[tuple[str | Setting, Tensor]],
) -> Iterator[tuple[str | Setting, dict[str, Tensor]]]:
    """Yield cosines and norm ratios of every gradient against the first one."""
    _, exact = next(gradients)
    squares = exact.square().sum(dim=-1)  # (B, N)
    for name, value in gradients:
        if name == "residual":
            yield name, {"states": value}
            continue
        dots, ours = (value * exact).sum(dim=-1), value.square().sum(dim=-1)
        rows = dots / (ours * squares).sqrt()
        dots, ours, theirs = dots.sum(1), ours.sum(1), squares.sum(1)
        states, norm_ratio = dots / (ours * theirs).sqrt(), (ours / theirs).sqrt()
        yield name, {"rows": rows, "states": states, "norm_ratio": norm_ratio}


def conclusions(means: dict[Setting, float]) -> list[Check]:
    """Check that the mean cosine grows with k, and with the damping factor."""
    pairs = list(combinations(sorted(means.items()), 2))
    rises = [b - a for ((f, _, d), a), ((g, _, e), b) in pairs if (f, d) == (g, e)]
    # A single term has the same direction for every factor.
    gains = [b - a for ((f, k, _), a), ((g, j, _), b) in pairs if (f, k) == (g, j) and k > 1]
    claims = {
        "smallest rise of the mean cosine with k": rises,
        "smallest gain of the mean cosine by a larger λ": gains,
    }
    return [Check.above(claim, min(values), 0) for claim, values in claims.items() if values]
