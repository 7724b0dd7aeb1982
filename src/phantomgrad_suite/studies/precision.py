"""Figure 1: how precise the phantom gradient is in the synthetic setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping, check_several
from phantomgrad.gradients import ImplicitGradient
from phantomgrad.jacobian import Linearization
from phantomgrad.gradients.phantom import damped_steps
from phantomgrad.models.synthetic import SyntheticCell, check_synthetic
from phantomgrad.nn.linear import Nonlinearity
from phantomgrad.solvers import Broyden, Map
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, Track, distribution, silently

Setting = tuple[str, int, float]
"""Form (``NPG`` or ``UPG``), k and lambda."""


@dataclass(frozen=True, kw_only=True)
class Precision(Study):
    r"""Cosine similarity of NPG and UPG to the exact gradient (Geng et al., 2021, Figure 1).

    For each of many random pairs (u, y) of ``N x D`` numbers, all standard normal,
    :math:`h^* = F(h^* + u)` is found by fixed-point iteration from zero, and the gradient of the
    mean squared error between :math:`h^*` and y by u is taken by every estimator. The exact one is
    taken twice: by backpropagation through all iterations, which the others are compared with, and
    by implicit differentiation with Broyden's method.

    The paper draws the distribution over the samples without saying whether a sample is the whole
    ``N x D`` state or one of its rows; both are recorded.

    Numbers: ``exact`` holds the distributions of ``agreement``, the cosine between the two exact
    gradients, and of the ``residual`` of :math:`h^*`; ``estimates`` is a list of
    ``form``, ``steps``, ``damping``, and the distributions of the cosine over ``states`` and
    ``rows`` and of ``norm_ratio``, the norm of the estimate over that of the exact gradient.

    Args:
        nonlinearity: of F; the paper does not name it.
        lipschitz: :math:`L_h`, the spectral norm of the symmetric weight.
        size: D.
        rows: N.
        samples: number of pairs.
        steps: the values of k.
        dampings: the values of :math:`\lambda`.
        iterations: of the fixed-point iteration; fewer would do for :math:`h^*`, but leave the
            gradients that are pulled back through them behind.
        tol: relative error of :math:`h^*` that they must reach.
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

    def __post_init__(self) -> None:
        for name in ("rows", "samples", "iterations", "broyden_iterations", "batch"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("steps", "dampings"):
            check_several(name, getattr(self, name))
        check_synthetic(self.lipschitz, self.nonlinearity)
        for steps in self.steps:
            check_at_least("steps", steps, 1)
        for damping in self.dampings:
            check_damping(damping)

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure every pair."""
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, self.lipschitz, self.nonlinearity, generator).to(device)
        books = _Books()
        sizes = [self.batch] * (self.samples // self.batch)
        if self.samples % self.batch:
            sizes.append(self.samples % self.batch)
        for size in track(sizes, f"batches of {self.batch} samples"):
            # Pair after pair, so that the draws do not depend on the batch.
            pairs = torch.randn(size, 2, self.rows, self.size, generator=generator)
            u, y = pairs.transpose(0, 1).contiguous().to(device)
            books.enter(self.gradients(cell, u, y))
        return books.findings(self.tol)

    def gradients(
        self, cell: SyntheticCell, u: Tensor, y: Tensor
    ) -> Iterator[tuple[str | Setting, Tensor]]:
        """Yield what is measured, by name: the exact gradients first, then the estimates.

        Args:
            cell: F, with a constant weight.
            u: the inputs, ``(B, N, D)``.
            y: the targets, likewise.
        """
        u.requires_grad_()

        def f(h: Tensor) -> Tensor:
            return cell(h, u)  # type: ignore[no-any-return]

        def pull(h: Tensor) -> Tensor:
            """Return the gradient by u of the errors, each a mean over its state."""
            cotangent = (h.detach() - y) * (2 / (self.rows * self.size))
            return torch.autograd.grad(h, u, cotangent, retain_graph=True)[0]

        *_, end = damped_steps(f, torch.zeros_like(u), self.iterations, damping=1.0)
        yield "exact", pull(end)
        z = end.detach()
        yield "residual", _relative_error(f, z)
        adjoint = Broyden(max_evaluations=self.broyden_iterations + 1, tol=0)
        yield "implicit", pull(ImplicitGradient(solver=adjoint).attach(f, z))
        for damping in self.dampings:
            for k, h in enumerate(damped_steps(f, z, max(self.steps), damping), start=1):
                if k in self.steps:
                    yield ("UPG", k, damping), pull(h)
            yield from self._neumann(f, z, u, 2 * (z - y) / (self.rows * self.size), damping)

    def _neumann(
        self, f: Map, z: Tensor, u: Tensor, v: Tensor, damping: float
    ) -> Iterator[tuple[Setting, Tensor]]:
        """Yield NPG for every k from one series: its sums are those of the smaller k, continued."""
        at, total = Linearization(f, z), v
        for k in range(1, max(self.steps) + 1):
            into_z, into_u = at.vjps(total, u)
            if k in self.steps:
                yield ("NPG", k, damping), damping * into_u
            total = torch.lerp(total, into_z, damping) + v


class _Books:
    """Cosines and norms of every batch, by estimate."""

    def __init__(self) -> None:
        self._values: dict[Any, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))

    def enter(self, measured: Iterator[tuple[str | Setting, Tensor]]) -> None:
        """Compare every gradient with the exact one, which comes before them."""
        exact = squares = torch.empty(0)
        for name, value in measured:
            if name == "residual":
                self._keep(name, "states", value)
            elif name == "exact":
                exact, squares = value, value.square().sum(dim=-1)  # (B, N)
            else:
                dots = (value * exact).sum(dim=-1)
                ours = value.square().sum(dim=-1)
                self._keep(name, "rows", dots / (ours * squares).sqrt())
                dots, ours, theirs = dots.sum(1), ours.sum(1), squares.sum(1)
                self._keep(name, "states", dots / (ours * theirs).sqrt())
                self._keep(name, "norm_ratio", (ours / theirs).sqrt())

    def _keep(self, name: Any, quantity: str, values: Tensor) -> None:
        self._values[name][quantity].append(values.flatten())

    def findings(self, tol: float) -> Findings:
        """Return the distributions, and whether the paper's conclusions hold."""
        found = {
            name: {k: distribution(torch.cat(parts)) for k, parts in quantities.items()}
            for name, quantities in self._values.items()
        }
        agreement, residual = found.pop("implicit")["states"], found.pop("residual")["states"]
        estimates = [
            {"form": form, "steps": steps, "damping": damping, **found[form, steps, damping]}
            for form, steps, damping in sorted(found)
        ]
        checks = [
            Check.above(
                "smallest cosine between the two exact gradients",
                agreement["percentiles"][0],
                0.9999,
            ),
            Check.below("largest relative error of h*", residual["percentiles"][-1], tol),
            *_conclusions({key: found[key]["states"]["mean"] for key in sorted(found)}),
        ]
        return Findings(
            {"exact": {"agreement": agreement, "residual": residual}, "estimates": estimates},
            checks,
            f"the two exact gradients agree to a cosine of {agreement['percentiles'][0]:.7f}",
        )


@torch.no_grad()
def _relative_error(f: Map, h: Tensor) -> Tensor:
    """Return ``|h - F(h)| / |h|`` of each state, ``(B,)``."""
    norms = [torch.linalg.vector_norm(x, dim=(1, 2)) for x in (h, h - f(h))]
    relative: Tensor = norms[1] / norms[0]
    return relative


def _conclusions(means: dict[Setting, float]) -> list[Check]:
    """Put to the test that precision grows with k, and is slowed down by a small damping."""
    rises, gains = [], []
    for (form, k, damping), mean in means.items():
        rises += [m - mean for (f, j, d), m in means.items() if (f, d) == (form, damping) and j > k]
        if k > 1:  # a single term has one direction, whatever its factor
            gains += [
                m - mean for (f, j, d), m in means.items() if (f, j) == (form, k) and d > damping
            ]
    checks = []
    if rises:
        checks.append(Check.above("smallest rise of the mean cosine with k", min(rises), 0))
    if gains:
        checks.append(Check.above("smallest gain of the mean cosine by a larger λ", min(gains), 0))
    return checks
