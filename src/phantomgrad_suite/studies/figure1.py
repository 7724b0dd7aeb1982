"""Figure 1: how precise the phantom gradient is in the synthetic setting."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from phantomgrad.gradients import ImplicitGradient
from phantomgrad.gradients.phantom import damped_steps
from phantomgrad.jacobian import Linearization
from phantomgrad.solvers import Broyden, Map
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, progress, rounded
from phantomgrad_suite.studies.synthetic import Nonlinearity, SyntheticCell

Setting = tuple[str, int, float]  # form (NPG or UPG), k and lambda


@dataclass(frozen=True, kw_only=True)
class Precision(Study):
    r"""Cosine similarity of NPG and UPG to the exact gradient (Geng et al., 2021, Figure 1).

    For random pairs (u, y) of ``N x D`` standard normal numbers, the mean squared error between
    :math:`h^* = F(h^* + u)` and y is differentiated with respect to u. The exact gradient is
    computed twice: by backpropagation through all fixed-point ``iterations`` (the reference), and
    implicitly with Broyden's method. Cosines are taken over ``states``, ``(N, D)``, and over their
    ``rows``, as the paper does not say which is a sample. ``tol`` is the required relative error of
    :math:`h^*`.
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

    def measure(self, seed: int, device: torch.device) -> Findings:
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, self.lipschitz, self.nonlinearity, generator).to(device)
        values: dict[Any, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        batches = [min(self.batch, self.samples - i) for i in range(0, self.samples, self.batch)]
        for size in progress(batches):
            # Pair after pair, so that the draws do not depend on the batch.
            pairs = torch.randn(size, 2, self.rows, self.size, generator=generator)
            u, y = pairs.transpose(0, 1).contiguous().to(device)
            gradients = self.gradients(cell, u, y)
            _, exact = next(gradients)
            squares = exact.square().sum(dim=-1)  # (B, N)
            for name, found in gradients:
                compared = {"states": found}
                if name != "residual":
                    compared = _compare(found, exact, squares)
                for quantity, batch in compared.items():
                    values[name][quantity].append(batch.flatten())
        distributions = {
            name: {quantity: distribution(torch.cat(parts)) for quantity, parts in found.items()}
            for name, found in values.items()
        }
        agreement, residual = (distributions.pop(x)["states"] for x in ("implicit", "residual"))
        least, largest = agreement["percentiles"][0], residual["percentiles"][-1]
        estimates = [
            {"form": form, "steps": k, "damping": damping, **found}
            for (form, k, damping), found in sorted(distributions.items(), key=itemgetter(0))
        ]
        checks = [
            Check.above("smallest cosine between the two exact gradients", least, 0.9999),
            Check.below("largest relative error of h*", largest, self.tol),
            *conclusions({key: found["states"]["mean"] for key, found in distributions.items()}),
        ]
        exact_ones = {"agreement": agreement, "residual": residual}
        return Findings({"exact": exact_ones, "estimates": estimates}, checks)

    def gradients(
        self, cell: SyntheticCell, u: Tensor, y: Tensor
    ) -> Iterator[tuple[str | Setting, Tensor]]:
        """Yield every gradient by its name, ``exact`` first, and the ``residual`` of the state."""
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


def _neumann_path(f: Map, z: Tensor, u: Tensor, v: Tensor, damping: float) -> Iterator[Tensor]:
    """Yield NPG with respect to u for k = 1, 2, ..., from the partial sums of one series."""
    at, partial_sum = Linearization(f, z), v
    while True:
        by_z, by_u = at.vjps(partial_sum, u)
        yield damping * by_u
        partial_sum = torch.lerp(partial_sum, by_z, damping) + v


def _compare(gradient: Tensor, exact: Tensor, squares: Tensor) -> dict[str, Tensor]:
    dots, ours = (gradient * exact).sum(dim=-1), gradient.square().sum(dim=-1)
    rows = dots / (ours * squares).sqrt()
    dots, ours, theirs = dots.sum(1), ours.sum(1), squares.sum(1)
    states, norm_ratio = dots / (ours * theirs).sqrt(), (ours / theirs).sqrt()
    return {"rows": rows, "states": states, "norm_ratio": norm_ratio}


def distribution(values: Tensor) -> dict[str, Any]:
    """Return mean, standard deviation, and the percentiles 0 to 100: the nearest of ``values``."""
    ordered = values.flatten().double().sort().values
    shares = torch.arange(101, dtype=torch.float64) / 100
    places = (shares * (ordered.numel() - 1)).round().long()
    return {
        "n": ordered.numel(),
        "mean": rounded(ordered.mean()),
        "std": rounded(ordered.std(unbiased=False)),
        "percentiles": [rounded(x) for x in ordered[places]],
    }


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
