"""Figure 4 (appendix): gradient solvers along their iterations, as conditioning gets worse."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import torch
from torch import Tensor

from phantomgrad.gradients.phantom import damped_steps, neumann_sums
from phantomgrad.jacobian import Linearization
from phantomgrad.solvers import Broyden, FixedPoint, Map
from phantomgrad.solvers.base import flat
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, dense_jacobian, progress, rounded
from phantomgrad_suite.studies.synthetic import Nonlinearity, SyntheticCell

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)  # the quantiles over the samples that are recorded
_ILL_CONDITIONED = 0.999  # the Lipschitz constant from which the paper's effects show
_LOW, _MEDIAN = 0, 2  # places in SHARES


@dataclass(frozen=True, kw_only=True)
class Dynamics(Study):
    r"""Solvers of the gradient, step by step (Geng et al., 2021, "Gradient Solver").

    With J the Jacobian at :math:`h^*` and v the gradient of the mean squared error there, Broyden's
    method solves :math:`\hat g = J^\top \hat g + v` from v. Along its ``iterations``, and along k
    for the phantom gradients, four quantities are measured:

    .. math:: \|(I - J^\top) \hat g - v\|, \quad \|(I - J^\top) \hat g - v\| / \|\hat g\|, \quad
              \cos(\hat g, g), \quad \|\hat g\|_1

    where g is the exact solution, by a dense solve in float64. For UPG, :math:`\hat g` is the
    gradient that its backward pass gives a constant added to F.
    """

    nonlinearity: Nonlinearity = "tanh"
    lipschitz: Sequence[float] = (0.9, 0.99, 0.999, 0.9999)
    size: int = 128
    rows: int = 32
    samples: int = 50
    iterations: int = 30
    dampings: Sequence[float] = (0.5, 1.0)
    forward_iterations: int = 100

    def measure(self, seed: int, device: torch.device) -> Findings:
        levels = [self._level(x, seed, device) for x in progress(self.lipschitz)]
        ill_conditioned = self.nonlinearity == "linear" and max(self.lipschitz) >= _ILL_CONDITIONED
        checks = conclusions(levels, ill_conditioned)
        return Findings({"levels": levels, "shares": list(SHARES)}, checks)

    def _level(self, lipschitz: float, seed: int, device: torch.device) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(seed)
        cell = SyntheticCell(self.size, lipschitz, self.nonlinearity, generator).to(device)
        u, y = torch.randn(2, self.samples, self.rows, self.size, generator=generator).to(device)
        f: Map = partial(cell, u=u)
        solver = FixedPoint(max_evaluations=self.forward_iterations, tol=0)
        solution = solver.solve(f, torch.zeros_like(u))
        v = (solution.z - y) * (2 / (self.rows * self.size))
        jacobian = dense_jacobian(cell, solution.z.flatten(0, 1), u.flatten(0, 1))
        system = torch.eye(self.size, dtype=jacobian.dtype, device=device) - jacobian.mT
        exact = torch.linalg.solve(system, v.flatten(0, 1).double()).view(v.shape)
        vjp, n = Linearization(f, solution.z).vjp, self.iterations
        image: Map = lambda g: vjp(g) + v  # noqa: E731
        paths: dict[tuple[str, float | None], Iterable[Tensor]]
        paths = {("Broyden", None): broyden_path(image, v, n)}
        for damping in self.dampings:
            paths["NPG", damping] = neumann_path(vjp, v, n, damping)
            paths["UPG", damping] = unrolled_path(f, solution.z, v, n, damping)
        return {
            "lipschitz": lipschitz,
            "residual": float(solution.residual.max()),
            "condition": float(torch.linalg.cond(system).median()),
            "l1_norm": quantiles(exact.abs().sum(dim=(1, 2))),
            "methods": [
                {"name": name, "damping": damping, **measured(path, image, exact)}
                for (name, damping), path in paths.items()
            ],
        }


def broyden_path(image: Map, v: Tensor, iterations: int) -> list[Tensor]:
    """Return the iterates of Broyden's method: the arguments at which it evaluates its map."""
    iterates: list[Tensor] = []

    def recorded(g: Tensor) -> Tensor:
        iterates.append(g.clone())
        return image(g)

    Broyden(max_evaluations=iterations + 1, tol=0).solve(recorded, v)
    return iterates


def neumann_path(vjp: Map, v: Tensor, iterations: int, damping: float) -> Iterator[Tensor]:
    """Yield NPG for k = 1, 2, ..."""
    sums = neumann_sums(lambda g: torch.lerp(g, vjp(g), damping), v)
    yield from (damping * total for total in islice(sums, iterations))


def unrolled_path(
    f: Map, z: Tensor, v: Tensor, iterations: int, damping: float
) -> Iterator[Tensor]:
    """Yield UPG for k = 1, 2, ..."""
    constant = torch.zeros_like(z, requires_grad=True)
    for h in damped_steps(lambda h: f(h) + constant, z, iterations, damping):
        yield torch.autograd.grad(h, constant, v, retain_graph=True)[0]


def measured(path: Iterable[Tensor], image: Map, exact: Tensor) -> dict[str, list[list[float]]]:
    """Return the quantiles of the four quantities along ``path``; ``exact`` is the solution g."""
    found: dict[str, list[list[float]]] = {}
    for g in path:
        ours, theirs = flat(g).double(), flat(exact)
        objective = torch.linalg.vector_norm(flat(image(g) - g).double(), dim=1)
        quantities = {
            "objective": objective,
            "relative_error": objective / torch.linalg.vector_norm(ours, dim=1),
            "cosine": torch.cosine_similarity(ours, theirs, dim=1),
            "l1_norm": ours.abs().sum(dim=1),
        }
        for name, values in quantities.items():
            found.setdefault(name, []).append(quantiles(values))
    return found


def quantiles(values: Tensor) -> list[float]:
    """Return the quantiles ``SHARES``; a nan counts as infinite."""
    values = values.masked_fill(values.isnan(), torch.inf)
    shares = torch.tensor(SHARES, dtype=values.dtype, device=values.device)
    return [rounded(x, 6) for x in torch.quantile(values, shares)]


def conclusions(levels: list[dict[str, Any]], ill_conditioned: bool) -> list[Check]:
    """Check that phantom gradients are stable at the worst level, and that Broyden is not."""
    methods = max(levels, key=lambda level: float(level["lipschitz"]))["methods"]
    rises, peaks = [], []
    for method in methods:
        objectives = [step[_MEDIAN] for step in method["objective"]]
        rises.append(max(objectives) / objectives[0])
        peaks.append(max(step[_MEDIAN] for step in method["l1_norm"]))
    claim = "largest objective of a phantom gradient over that of k = 1 (medians)"
    checks = [Check.below(claim, max(rises[1:]), 1.001)]
    if ill_conditioned:
        ratio = peaks[0] / max(peaks[1:])
        lows = [step[_LOW] for step in methods[0]["cosine"]]
        fall = max(before - after for before, after in pairwise(lows))
        checks += [
            Check.above("largest objective of Broyden over its start", rises[0], 10),
            Check.above("largest norm of Broyden over that of the phantom gradients", ratio, 10),
            Check.above("largest fall of Broyden's cosine in a step (5 % of samples)", fall, 0.1),
        ]
    return checks
