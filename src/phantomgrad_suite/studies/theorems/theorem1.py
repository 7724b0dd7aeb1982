"""Theorem 1 in the synthetic setting: when its condition holds, and what follows."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from phantomgrad.diagnostics import agreement
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies import base
from phantomgrad_suite.studies.base import Findings, Matrix, Study, rounded
from phantomgrad_suite.studies.synthetic import Nonlinearity

# Half steps reach equilibria that plain iteration leaves where the map is not a contraction.
_SOLVER = FixedPoint(max_evaluations=20_000, tol=1e-13, damping=0.5)
_ROUNDING = -1e-9
_SAME = 1 - 1e-6  # ratio of two condition numbers that are those of the limit

Outcome = dict[str, float]


@dataclass(frozen=True)
class AscentCondition(Study):
    r"""How often the sufficient condition of Theorem 1 holds, and whether it is right.

    A sample is a cell :math:`\sigma(W (h + u))` with a new W, a Gaussian input u and a Gaussian
    target y; the loss is :math:`|h^* - y|^2 / 2`. The gradient is NPG (at the equilibrium UPG is
    the same), with respect to the input u and to the weight W. Theorem 1 needs no contraction: with
    a Lipschitz constant above 1 ascent can fail, and then the condition must not hold. ``samples``
    are drawn for each constant.
    """

    size: int = 32
    samples: int = 32
    lipschitz: Sequence[float] = (0.5, 0.9, 0.99, 2.0)
    steps: Sequence[int] = (1, 2, 5, 10, 20, 50, 100)
    dampings: Sequence[float] = (0.5, 0.8, 1.0)
    nonlinearity: Nonlinearity = "tanh"

    def measure(self, seed: int, device: torch.device) -> Findings:
        generator = torch.Generator().manual_seed(seed)
        groups: dict[tuple[Any, ...], list[Outcome]] = defaultdict(list)
        for norm, _ in base.progress([*product(self.lipschitz, range(self.samples))]):
            by_state, by_weight, v = self._sample(norm, generator, device)
            sums = {x: base.truncated_series(by_state, x, self.steps) for x in self.dampings}
            series = {(k, x): sums[x][k] for k, x in product(self.steps, self.dampings)}
            for wanted, by_wanted in (("input", by_state), ("weight", by_weight)):
                for key, outcome in ascent_outcomes(by_state, by_wanted, v, series).items():
                    groups[norm, wanted, *key].append(outcome)
        outcomes = [outcome for group in groups.values() for outcome in group]
        cases = [_case(key, group) for key, group in groups.items()]
        return Findings({"cases": cases}, [*ascent_checks(outcomes), *conditioning_checks(cases)])

    def _sample(
        self, norm: float, generator: torch.Generator, device: torch.device
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Return dF/dh (which is dF/du), dF/dW, and the gradient of the loss at h."""
        cell, u = base.synthetic_problem(self, norm, generator, device)
        y = torch.randn(1, self.size, generator=generator, dtype=torch.float64).to(device)
        solution = _SOLVER.solve(lambda h: cell(h, u), torch.zeros_like(u))
        h = solution.z
        # Where the norm of its image overflows, the relative residual of a state is zero.
        if not (solution.converged.all() and cell(h, u).norm().isfinite()):
            raise ValueError(f"lipschitz must let half steps reach an equilibrium, got {norm}")
        by_state = base.as_matrix(base.dense_jacobian(cell, h, u)[0])
        image = cell.requires_grad_()(h, u)[0]
        rows = [torch.autograd.grad(x, cell.weight, retain_graph=True)[0] for x in image]
        return by_state, base.as_matrix(torch.stack(rows)), (h - y)[0].cpu().numpy()


def ascent_outcomes(
    by_state: Matrix, by_wanted: Matrix, v: Matrix, series: Mapping[Any, Matrix]
) -> dict[Any, Outcome]:
    r"""Return both sides of Theorem 1 and Remark 1 for phantom gradients at one equilibrium.

    Theorem 1 (Geng et al., 2021, "General Condition on the Phantom Gradient"): the phantom
    gradient :math:`A v` is an ascent direction, whatever the loss, if

    .. math:: \|A (I - \partial F / \partial h) - \partial F / \partial \theta\|
              < \sigma_{\min}^2 / \sigma_{\max}

    with the extreme singular values of :math:`\partial F / \partial \theta`. Remark 1, for
    :math:`A = (\partial F / \partial \theta) D`: it is enough that
    :math:`\|D (I - \partial F / \partial h) - I\| < 1 / \kappa^2`. With
    :math:`u = (I - \partial F / \partial h)^{-1} v` and the exact gradient g, it ascends for every
    loss exactly if the ``margin``, the least :math:`\langle A v, g \rangle / |u|^2` over all v, is
    positive. The ``slack`` is the margin less the bound in the proof, over
    :math:`\sigma_{\max}^2`, and ``condition`` is the condition number of A. Derivatives are by the
    state, ``(d, d)`` as they act on cotangents, and by the wanted tensor, ``(p, d)``; ``series``
    has the matrix D of each phantom gradient.
    """
    eye = np.eye(len(by_state))
    rest = eye - by_state
    exact = torch.from_numpy(by_wanted @ np.linalg.solve(rest, v))
    singular = np.linalg.svd(by_wanted, compute_uv=False)
    largest, smallest = float(singular[0]), float(singular[-1])
    if smallest <= (len(eye) * np.finfo(np.float64).eps) ** 0.5 * largest:
        smallest = 0.0  # its square is lost in the rounding of the square of the largest
    scale = largest or 1.0  # a map that does not depend on the wanted tensor has zeros alone
    right, reduced_right = smallest**2 / scale, (smallest / scale) ** 2
    found = {}
    for name, inverse in series.items():
        phantom = by_wanted @ inverse
        reached = phantom @ rest  # as close to dF/dtheta as A to the exact matrix
        inner = reached.T @ by_wanted
        left = float(np.linalg.norm(reached - by_wanted, 2))
        reduced_left = float(np.linalg.norm(inverse @ rest - eye, 2))
        margin = float(np.linalg.eigvalsh(0.5 * (inner + inner.T))[0])
        cosine = agreement([torch.from_numpy(phantom @ v)], [exact]).cosine
        found[name] = {
            "holds": left < right,
            "reduced": reduced_left < reduced_right,
            "every": margin > 0,
            "ascends": cosine > 0,
            "left": left,
            "right": right,
            "reduced_left": reduced_left,
            "reduced_right": reduced_right,
            "cosine": cosine,
            "margin": margin,
            "slack": (margin - smallest**2 + largest * left) / scale**2,
            "condition": _condition(phantom),
        }
    return found


def _condition(a: Matrix) -> float:
    """Return the condition number, infinite if the least singular value is lost in rounding."""
    singular = np.linalg.svd(a, compute_uv=False)
    lost = singular[-1] <= len(singular) * np.finfo(np.float64).eps * singular[0]
    return math.inf if lost else float(singular[0] / singular[-1])


def _case(key: tuple[Any, ...], group: list[Outcome]) -> dict[str, Any]:
    values = {name: [outcome[name] for outcome in group] for name in group[0]}
    shares = {name: fmean(values[name]) for name in ("holds", "reduced", "every", "ascends")}
    kept = ("left", "right", "reduced_right", "condition")
    medians = {name: rounded(median(values[name])) for name in kept}
    cosine = {"mean": rounded(fmean(values["cosine"])), "min": rounded(min(values["cosine"]))}
    setting = dict(zip(("lipschitz", "wanted", "steps", "damping"), key, strict=True))
    return {**setting, **shares, **medians, "cosine": cosine}


def ascent_checks(outcomes: Sequence[Outcome]) -> list[Check]:
    """Check that the conditions can hold, imply ascent and are consistent."""
    held = [o for o in outcomes if o["holds"]]
    failed = sum(not (o["ascends"] and o["every"]) for o in held)
    odd = sum(bool(o["reduced"] and not o["holds"]) for o in outcomes)
    slack = min(o["slack"] for o in outcomes)
    ascent = "of these, cases without an ascent direction, for this loss or for some other"
    bound = "least inner product over |u|^2 less the bound in the proof, over sigma_max^2"
    return [
        Check.above("cases in which the condition of Theorem 1 holds", len(held), 0),
        Check.below(ascent, failed, 1),
        Check.below("cases in which Remark 1 holds and Theorem 1 does not", odd, 1),
        Check.above(bound, slack, _ROUNDING),
    ]


def conditioning_checks(cases: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Check that A is conditioned worse with a larger k, and better with a smaller lambda.

    (Geng et al., 2021, "On the conditioning of the phantom gradient".) Compared are medians, where
    the map is a contraction and A has full rank.
    """
    names = ("lipschitz", "wanted", "steps", "damping")
    found = {
        tuple(x[name] for name in names): x["condition"]
        for x in cases
        if x["lipschitz"] < 1 and math.isfinite(x["condition"])
    }
    pairs = list(combinations(sorted(found.items()), 2))
    by_steps = [b / a for ((*f, _, d), a), ((*g, _, e), b) in pairs if (f, d) == (g, e)]
    # A single term has the same conditioning for every factor.
    by_damping = [b / a for ((*f, k, _), a), ((*g, j, _), b) in pairs if (f, k) == (g, j) and k > 1]
    claims = {
        "smallest ratio of median condition numbers of A, by a larger k": by_steps,
        "smallest ratio of median condition numbers of A, by a larger λ": by_damping,
    }
    return [Check.above(claim, min(ratios), _SAME) for claim, ratios in claims.items() if ratios]
