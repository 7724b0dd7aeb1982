"""Theorem 1 in the synthetic setting: when its condition holds, and what it promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_several
from phantomgrad.gradients import NeumannPhantomGradient
from phantomgrad.models.synthetic import SyntheticCell
from phantomgrad.nn.linear import Nonlinearity
from phantomgrad.solvers import FixedPoint, Map
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.base import Findings, Study, Track, silently
from phantomgrad_suite.studies.conditions import Conditions, Direction, conditions, direction
from phantomgrad_suite.studies.factors import Dense

# Half steps: they find equilibria that plain iteration leaves where the map is no contraction.
_SOLVER = FixedPoint(max_evaluations=20_000, tol=1e-13, damping=0.5)
_ROUNDING = -1e-9

Outcome = tuple[Conditions, Direction]


@dataclass(frozen=True)
class DescentStudy(Study):
    r"""How often the sufficient condition of Theorem 1 holds, and whether it is right.

    A sample is a cell :math:`\tanh(W (h + u))` with a new W, a Gaussian input u and a Gaussian
    target y; the loss is :math:`|h^* - y|^2 / 2`. The gradient is NPG (at the equilibrium UPG is
    the same), by the input u and by the weight W.

    ``numbers["cases"]`` has an entry for each Lipschitz constant, wanted tensor, k and lambda:
    ``lipschitz``, ``wanted`` (``input`` or ``weight``), ``steps``, ``damping``; the shares of
    samples ``holds`` (the condition of Theorem 1), ``reduced`` (that of Remark 1), ``every``
    (ascent for every loss: the exact condition) and ``ascends`` (for this loss); the medians
    ``left``, ``right`` (of Theorem 1) and ``reduced_right`` (:math:`1 / \kappa^2`); ``cosine``, its
    ``mean`` and ``min``.

    Args:
        size: D, the width of the state.
        samples: for each Lipschitz constant.
        lipschitz: the values of :math:`L_h`. Theorem 1 needs no contraction: above 1 ascent can
            fail, and the condition must see it.
        steps: the values of k.
        dampings: the values of :math:`\lambda`.
        nonlinearity: of the cell.
    """

    size: int = 32
    samples: int = 32
    lipschitz: Sequence[float] = (0.5, 0.9, 0.99, 2.0)
    steps: Sequence[int] = (1, 2, 5, 10, 20, 50, 100)
    dampings: Sequence[float] = (0.5, 0.8, 1.0)
    nonlinearity: Nonlinearity = "tanh"

    def __post_init__(self) -> None:
        check_at_least("samples", self.samples, 1)
        for name in ("lipschitz", "steps", "dampings"):
            check_several(name, getattr(self, name))

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        """Measure every case on the same samples."""
        generator = torch.Generator().manual_seed(seed)
        outcomes: dict[tuple[float, str, int, float], list[Outcome]] = {}
        for norm, _ in track(list(product(self.lipschitz, range(self.samples))), "samples"):
            for wanted, factors, cotangent in self._sample(norm, generator, device):
                for k, damping in product(self.steps, self.dampings):
                    gradient = NeumannPhantomGradient(k, damping)
                    outcome = (
                        conditions(factors, gradient),
                        direction(factors, gradient, cotangent),
                    )
                    outcomes.setdefault((norm, wanted, k, damping), []).append(outcome)
        flat = [outcome for group in outcomes.values() for outcome in group]
        cases = [_case(*key, group) for key, group in outcomes.items()]
        held = sum(c.holds for c, _ in flat)
        ascents = sum(c.margin > 0 for c, _ in flat)
        headline = f"of {len(flat)} cases the condition holds in {held}, ascent in {ascents}"
        return Findings({"cases": cases}, _checks(flat), headline)

    def _sample(
        self, norm: float, generator: torch.Generator, device: torch.device
    ) -> Iterator[tuple[str, Dense, Tensor]]:
        """Yield the name of what is wanted, the matrices, and the cotangent of the loss."""
        cell = SyntheticCell(self.size, norm, self.nonlinearity, generator)
        cell = cell.to(device, torch.float64)
        u, y = (
            torch.randn(1, self.size, generator=generator, dtype=torch.float64).to(device)
            for _ in range(2)
        )
        f: Map = lambda h: cell(h, u)  # noqa: E731
        solution = _SOLVER.solve(f, torch.zeros_like(u))
        if not bool(solution.converged.all()):
            raise ValueError(f"lipschitz must let half steps reach an equilibrium, got {norm}")
        h = solution.z
        for name, wanted in (("input", u), ("weight", cell.weight)):
            wanted.requires_grad_()
            yield name, Dense(f, h, [wanted]), h - y
            wanted.requires_grad_(False)


def _case(norm: float, wanted: str, k: int, damping: float, group: list[Outcome]) -> dict[str, Any]:
    sides, directions = zip(*group, strict=True)
    cosines = [d.cosine for d in directions]
    return {
        "lipschitz": norm,
        "wanted": wanted,
        "steps": k,
        "damping": damping,
        "holds": fmean(c.holds for c in sides),
        "reduced": fmean(bool(c.reduced_holds) for c in sides),
        "every": fmean(c.margin > 0 for c in sides),
        "ascends": fmean(d.ascends for d in directions),
        "left": _short(median(c.left for c in sides)),
        "right": _short(median(c.right for c in sides)),
        "reduced_right": _short(median(c.reduced_right for c in sides)),
        "cosine": {"mean": _short(fmean(cosines)), "min": _short(min(cosines))},
    }


def _short(value: float) -> float:
    return float(f"{value:.8g}")


def _checks(outcomes: list[Outcome]) -> list[Check]:
    held = [(c, d) for c, d in outcomes if c.holds]
    slack = min(
        (c.margin - c.sigma_min**2 + c.sigma_max * c.left) / c.sigma_max**2 for c, _ in outcomes
    )
    return [
        Check.above("cases in which the condition of Theorem 1 holds", len(held), 0),
        Check.below(
            "of these, cases without an ascent direction, for this loss or for some other",
            sum(not d.ascends or c.margin <= 0 for c, d in held),
            1,
        ),
        Check.below(
            "cases in which Remark 1 holds and Theorem 1 does not",
            sum(bool(c.reduced_holds) and not c.holds for c, _ in outcomes),
            1,
        ),
        Check.above(
            "least inner product over |u|^2 less the bound in the proof, over sigma_max^2",
            slack,
            _ROUNDING,
        ),
    ]
