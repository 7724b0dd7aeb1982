"""How close a gradient estimator comes to the exact gradient, at one equilibrium."""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from phantomgrad.gradients import GradientEstimator
from phantomgrad.jacobian import Linearization, pulled_back
from phantomgrad.solvers import LinearSolver, Map, Solver
from phantomgrad.solvers.base import flat, per_sample


class ExactGradient(NamedTuple):
    """The result of :func:`exact_gradient`.

    Attributes:
        gradient: one tensor for each of ``wanted``.
        z: the equilibrium, ``(B, *state)``.
        residual: with which the solve of the equilibrium ended, ``(B,)``.
        adjoint_residual: with which the adjoint solve ended, ``(B,)``.
    """

    gradient: tuple[Tensor, ...]
    z: Tensor
    residual: Tensor
    adjoint_residual: Tensor


class Agreement(NamedTuple):
    """An estimated gradient g compared with the exact one; ``nan`` where undefined.

    Attributes:
        cosine: ``<g, g_exact> / (|g| |g_exact|)``, the precision of Geng et al., 2021, section 4.2.
        norm_ratio: ``|g| / |g_exact|``.
    """

    cosine: float
    norm_ratio: float


def estimated_gradient(
    f: Map, z_star: Tensor, v: Tensor, estimator: GradientEstimator, wanted: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    r"""Return the gradient of :math:`\langle h, v \rangle` that an estimator gives to h.

    h is the attached equilibrium, and so

    .. math:: \hat g = A \, v, \qquad A \approx \frac{\partial F}{\partial \theta}
              \Big(I - \frac{\partial F}{\partial h}\Big)^{-1}

    with the A of the estimator (Geng et al., 2021, eqs. "A-unroll" and "A-neumann"). Nothing is
    accumulated into ``.grad``, and graphs that ``f`` uses can be used again.

    Args:
        f: the map, differentiable.
        z_star: its equilibrium as a solver found it, ``(B, *state)``.
        v: the gradient of a loss with respect to the equilibrium, ``(B, *state)``.
        estimator: any but :class:`phantomgrad.BackpropThroughSolver` (a ``ValueError``).
        wanted: tensors to differentiate with respect to; zeros for one that ``f`` does not use.
    """
    if estimator.needs_recorded_solve:
        raise ValueError(
            "estimator must be one that attaches a given equilibrium, "
            f"got {type(estimator).__name__}, which differentiates the solve itself"
        )
    with torch.enable_grad():
        attached = estimator.attach(f, z_star.detach())
    return pulled_back(attached, wanted, v)


def exact_gradient(
    f: Map,
    z_star: Tensor,
    v: Tensor,
    wanted: Sequence[Tensor],
    *,
    solver: Solver,
    adjoint: LinearSolver,
) -> ExactGradient:
    r"""Return the gradient of :math:`\langle h^*, v \rangle` to the accuracy of the solvers.

    The equilibrium is solved for again, from ``z_star``, and then the adjoint equation there,

    .. math:: u = \Big(\frac{\partial F}{\partial h}\Big)^{\!\top} u + v, \qquad
              g = \Big(\frac{\partial F}{\partial \theta}\Big)^{\!\top} u

    (Geng et al., 2021, eq. "true-grad", columns as vectors). Everything is computed in the dtype of
    the state; in float32 the residuals end near 1e-7.

    Args:
        f: the map, differentiable.
        z_star: where the solver starts, ``(B, *state)``.
        v: the gradient of a loss with respect to the equilibrium, ``(B, *state)``.
        wanted: tensors to differentiate with respect to; zeros for one that ``f`` does not use.
        solver: finds the equilibrium, with a tolerance as tight as the dtype allows.
        adjoint: solves the adjoint equation; any solver, or :class:`phantomgrad.GMRES`.
    """
    with torch.no_grad():  # a solver that autograd can record would keep all its evaluations
        solution = solver.solve(f, z_star.detach())
    at = Linearization(f, solution.z)
    with torch.no_grad():
        dual = adjoint.solve_linear(at.vjp, v)
    gradient = pulled_back(at.value, wanted, dual.z)
    return ExactGradient(gradient, solution.z, solution.residual, dual.residual)


@torch.no_grad()
def check_map(f: Map, z: Tensor) -> None:
    """Warn if the map is not deterministic, or mixes the samples of a batch.

    ``f`` is evaluated twice at ``z``, then with a random half of the samples replaced, then with
    the other half. Results for samples that were not replaced must agree to within one percent,
    which is more than rounding to half precision changes.
    """
    with torch.random.fork_rng([z.device] if z.device.type == "cuda" else []):
        fz = f(z)
        if _differs(f(z), fz).any():
            warnings.warn(
                "the cell returns different values for the same state and so has no equilibrium: "
                "draw its random numbers once per pass (phantomgrad.nn.VariationalDropout does)",
                stacklevel=3,
            )
        elif z.shape[0] > 1:
            generator = torch.Generator().manual_seed(0)
            half = torch.rand(z.shape[0], generator=generator, device="cpu").argsort() % 2 == 0
            half = half.to(z.device)
            mixes = False
            for kept in (half, ~half):
                changed = torch.where(per_sample(kept, z), z, 1 - 2 * z)
                mixes |= bool(_differs(f(changed), fz)[kept].any())
            if mixes:
                warnings.warn(
                    "the cell mixes the samples of a batch (the first dimension of the state), "
                    "which are solved independently and may stop too early: use "
                    "DEQ(..., coupled=True), make the batch the first dimension of the state, or "
                    "move batch normalisation out of the cell",
                    stacklevel=3,
                )


def _differs(a: Tensor, b: Tensor) -> Tensor:
    difference, size = (torch.linalg.vector_norm(flat(x), dim=1) for x in (a - b, b))
    differs: Tensor = difference > 0.01 * size
    return differs


def agreement(estimate: Sequence[Tensor], exact: Sequence[Tensor]) -> Agreement:
    """Compare two gradients, each the concatenation of its tensors, with sums in float64."""
    shapes, others = ([tuple(t.shape) for t in group] for group in (estimate, exact))
    if shapes != others:
        raise ValueError(f"estimate must have the shapes of exact, {others}, got {shapes}")
    inner = _dot(estimate, exact)
    size, exact_size = (math.sqrt(_dot(group, group)) for group in (estimate, exact))
    return Agreement(_quotient(_quotient(inner, size), exact_size), _quotient(size, exact_size))


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    # On the CPU, since some accelerators have no float64.
    pairs = (
        (x.detach().cpu().double(), y.detach().cpu().double()) for x, y in zip(a, b, strict=True)
    )
    return math.fsum(float((x * y).sum()) for x, y in pairs)


def _quotient(a: float, b: float) -> float:
    return a / b if b else math.nan
