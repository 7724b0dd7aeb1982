"""Theorem 3: where SGD with a phantom gradient ends, by how far the gradient is from the exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.gradients import (
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, Track, silently
from phantomgrad_suite.studies.theorems.regression import Regression, drawn_regression, rows

_POINTS = 60  # of a curve
_RANK = 0.9

Named = tuple[str, int | None, float | None, GradientEstimator | None]


@dataclass(frozen=True)
class SGDStudy(Study):
    r"""SGD on a small regression with the exact gradient and with phantom gradients.

    .. math:: W_{n+1} = W_n - \eta_n g_n, \qquad \eta_n = \eta_0 / \sqrt n,

    with g the gradient, or a phantom gradient, of a minibatch; the left side of Theorem 3 is

    .. math:: L_N = \sum_{n \le N} \eta_n \|\nabla R(W_n)\|^2 \Big/ \sum_{n \le N} \eta_n

    with the exact gradient of the whole objective. All gradients see the same data, starts and
    minibatches. The proof gives, besides what an exact gradient has,
    :math:`L_N \le G \epsilon + \dots` with G the largest :math:`\|\nabla R(W_n)\|` and
    :math:`\epsilon` the largest :math:`\|g_n - g_n^{\text{exact}}\|`.

    ``numbers``: ``steps``, at which curves are kept; ``gradients``, the exact one first, each with
    ``kind`` (``exact``, ``npg``, ``upg``), ``steps``, ``damping``, the values of the seeds
    ``level`` (the left side after all steps), ``late`` (the same over the second half of them),
    ``epsilon`` (``max`` and ``mean`` over the steps), ``bias`` (mean over the steps of the error
    in the gradient of R itself), ``bound`` (G) and ``risk`` (R at the end), and by step, in the
    mean over the seeds, ``curve`` (the left side) and ``square`` (:math:`\|\nabla R\|^2`);
    ``norm``, the largest spectral norm that any W had, below 1 for a contraction.

    Args:
        neumann: pairs of k and lambda.
        unrolled: likewise.
        seeds: runs of each gradient.
        iterations: N.
        rate: :math:`\eta_0`.
        size: D.
        data: samples of the data set.
        batch: samples of a minibatch, drawn with replacement.
        noise: standard deviation of that of the targets.
        norm: spectral norm of W at the start, in (0, 1).
        decay: the weight of the penalty on W.
    """

    neumann: Sequence[tuple[int, float]] = ((1, 1.0), (2, 0.5), (5, 0.5), (10, 0.5))
    unrolled: Sequence[tuple[int, float]] = ((1, 0.5), (2, 1.0), (3, 0.5), (5, 1.0))
    seeds: int = 4
    iterations: int = 1000
    rate: float = 0.2
    size: int = 6
    data: int = 48
    batch: int = 16
    noise: float = 0.1
    norm: float = 0.5
    decay: float = 0.5

    def __post_init__(self) -> None:
        for name in ("seeds", "size", "data", "batch"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("iterations", self.iterations, 2)
        if not self.rate > 0:
            raise ValueError(f"rate must be positive, got {self.rate}")
        if not self.decay >= 0:
            raise ValueError(f"decay must not be negative, got {self.decay}")
        if not 0 < self.norm < 1:
            raise ValueError(f"norm must lie in (0, 1), got {self.norm}")

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Run SGD with every gradient, side by side."""
        generator = torch.Generator().manual_seed(seed)
        problem = drawn_regression(
            (self.seeds, self.data, self.size),
            noise=self.noise,
            norm=self.norm,
            decay=self.decay,
            generator=generator,
        )
        descent = _Descent(problem.to(device), self._gradients())
        shape = (self.seeds, self.batch)
        for n in track(range(1, self.iterations + 1), "steps of SGD"):
            index = torch.randint(self.data, shape, generator=generator).to(device)
            descent.step(self.rate / math.sqrt(n), index)
        numbers = descent.numbers()
        levels = [_mean(entry["level"]) for entry in numbers["gradients"]]
        headline = f"level {levels[0]:.3g} with the exact gradient, up to {max(levels):.3g}"
        return Findings(numbers, _checks(numbers), headline)

    def _gradients(self) -> list[Named]:
        found: list[Named] = [("exact", None, None, None)]
        found += [("npg", k, x, NeumannPhantomGradient(k, x)) for k, x in self.neumann]
        found += [("upg", k, x, UnrolledPhantomGradient(k, x)) for k, x in self.unrolled]
        return found


class _Descent:
    """The runs of all gradients, ``(gradients x seeds)`` of them, and their history."""

    def __init__(self, problem: Regression, gradients: list[Named]) -> None:
        self._gradients = gradients
        self._problem = problem.repeated(len(gradients))
        self._weight = self._problem.start
        self._h = torch.zeros_like(self._problem.u)
        self._norm = 0.0
        self._rates: list[float] = []
        self._history: dict[str, list[Tensor]] = {"square": [], "epsilon": [], "bias": []}

    def step(self, rate: float, index: Tensor) -> None:
        """Measure at the present weights, then go down by the gradients of a minibatch."""
        problem, weight = self._problem, self._weight
        self._norm = max(self._norm, float(torch.linalg.matrix_norm(weight, ord=2).max()))
        self._h = problem.equilibrium(weight, self._h)
        index = index.repeat(len(self._gradients), 1)
        batch, h = problem.batch(index), rows(self._h, index)
        exact, whole = batch.exact_gradient(weight, h), problem.exact_gradient(weight, self._h)
        used = self._estimates(batch, h, exact)
        self._rates.append(rate)
        self._keep("square", _size(whole).square())
        self._keep("epsilon", _size(used - exact))
        self._keep("bias", _size(self._estimates(problem, self._h, whole) - whole))
        self._weight = weight - rate * used

    def _estimates(self, problem: Regression, h: Tensor, exact: Tensor) -> Tensor:
        """Return the gradient that each run follows, ``(runs, D, D)``."""
        count = len(self._gradients)
        parts = zip(
            self._gradients,
            problem.parts(count),
            *(x.chunk(count) for x in (self._weight, h, exact)),
            strict=True,
        )
        return torch.cat(
            [
                right if estimator is None else part.gradient(estimator, weight, state)
                for (*_, estimator), part, weight, state, right in parts
            ]
        )

    def _keep(self, name: str, values: Tensor) -> None:
        self._history[name].append(values.view(len(self._gradients), -1))

    def numbers(self) -> dict[str, Any]:
        """Return what the study records."""
        history = {name: torch.stack(values).cpu() for name, values in self._history.items()}
        rates = torch.tensor(self._rates, dtype=torch.float64).view(-1, 1, 1)
        final = self._problem.equilibrium(self._weight, self._h)
        risk = self._problem.risk(self._weight, final)
        shown = _spread(len(self._rates))
        entries = []
        for i, (kind, k, damping, _) in enumerate(self._gradients):
            square, epsilon, bias = (history[x][:, i] for x in ("square", "epsilon", "bias"))
            half = len(square) // 2
            level = _weighted(square, rates[:, 0])
            entry = {
                "level": level[-1],
                "late": _weighted(square[half:], rates[half:, 0])[-1],
                "bias": bias.mean(dim=0),
                "bound": square.amax(dim=0).sqrt(),
                "risk": risk.view(len(self._gradients), -1)[i],
                "curve": level.mean(dim=1)[shown],
                "square": square.mean(dim=1)[shown],
            }
            entries.append(
                {
                    "kind": kind,
                    "steps": k,
                    "damping": damping,
                    "epsilon": {
                        "max": _plain(epsilon.amax(dim=0)),
                        "mean": _plain(epsilon.mean(dim=0)),
                    },
                    **{name: _plain(values) for name, values in entry.items()},
                }
            )
        return {"steps": [n + 1 for n in shown], "gradients": entries, "norm": self._norm}


def _checks(numbers: dict[str, Any]) -> list[Check]:
    exact, *others = numbers["gradients"]
    epsilon = [_mean(entry["epsilon"]["max"]) for entry in (exact, *others)]
    level = [_mean(entry["level"]) for entry in (exact, *others)]
    excess = [
        (above - floor) / (bound * error)
        for entry in others
        for above, floor, bound, error in zip(
            entry["level"], exact["level"], entry["bound"], entry["epsilon"]["max"], strict=True
        )
    ]
    return [
        Check.below("largest spectral norm of W", numbers["norm"], 1),
        Check.above(
            "rank correlation of the left side with epsilon",
            float(spearmanr(epsilon, level).statistic),
            _RANK,
        ),
        Check.below("left side less that of the exact gradient, over G epsilon", max(excess), 1),
    ]


def _weighted(values: Tensor, rates: Tensor) -> Tensor:
    """Return the running mean of ``values`` by step, ``(steps, seeds)``, weighted by the rates."""
    return (values * rates).cumsum(dim=0) / rates.cumsum(dim=0)


def _spread(count: int) -> list[int]:
    """Return places among ``count``, spread evenly in the logarithm, the last one included."""
    places = torch.logspace(0, math.log10(count), _POINTS, dtype=torch.float64).round().long() - 1
    return sorted(set(places.clamp(0, count - 1).tolist()))


def _size(x: Tensor) -> Tensor:
    size: Tensor = torch.linalg.matrix_norm(x)
    return size


def _plain(values: Tensor) -> list[float]:
    return [float(f"{x:.6g}") for x in values.tolist()]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
