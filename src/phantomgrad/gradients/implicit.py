"""Implicit differentiation: the exact gradient, by an adjoint fixed-point solve."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.gradients.base import (
    GradientEstimator,
    Report,
    attach_by_cotangent,
    attach_image_by_cotangent,
)
from phantomgrad.gradients.newton import attach_by_newton
from phantomgrad.gradients.phantom import neumann_series
from phantomgrad.solvers import Broyden, Map, Solution, Solver

_FALLBACK_STEPS, _FALLBACK_DAMPING = 5, 0.5


class AdjointWarning(UserWarning):
    """The adjoint solve of some sample failed; its gradient is not the exact one."""


class AdjointError(RuntimeError):
    """The adjoint solve of some sample failed, and failures were asked to raise."""


@dataclass(frozen=True, kw_only=True)
class ImplicitGradient(GradientEstimator):
    r"""The exact gradient by the implicit function theorem.

    The backward pass solves the adjoint equation with any solver, from ``u = v``,

    .. math:: u = J^\top u + v, \qquad J = \frac{\partial f}{\partial z}\Big|_{z^*},
              \quad v = \frac{\partial \mathcal{L}}{\partial z^*} ,

    and then takes :math:`(\partial f/\partial\theta)^\top u` (Bai et al., 2019; Geng et al., 2021,
    eq. "true-grad"). Memory is that of one graph of ``f``, whatever the solver does.

    A sample *failed* when the relative residual of its adjoint is above ``failure_residual``, or
    is not finite. The iterate used is the best one, the start ``u = v`` (the one-step gradient)
    included, so a failure is never a silent zero.

    Args:
        solver: solves the adjoint equation.
        on_failure: ``"warn"`` (an :class:`AdjointWarning`, which Python shows once), ``"raise"``
            (an :class:`AdjointError`, with the residual), ``"phantom"`` (replace the adjoint of
            the failed samples by the Neumann phantom gradient, k = 5, lambda = 0.5), or
            ``"ignore"``, which alone does not wait for an accelerator to tell.
        failure_residual: relative residual above which a sample counts as failed.
        order: how many derivatives are exact. 2 also gives exact second derivatives
            (``create_graph=True``) at the price of two more evaluations of ``f``, whose graphs
            live as long as the loss; 1 refuses them.
        at: where the Jacobian is taken. ``"equilibrium"``: at what the solver found, which is
            also the value. ``"image"``: the value is :math:`\hat z = f(z^*)`, J is taken there and
            :math:`\partial f / \partial\theta` at z*, as in the code of MDEQ (Bai et al., 2020),
            for one more evaluation and a second graph of ``f``. The two differ by the residual of
            the solver. The second is for ``order=1`` alone.

    Raises:
        ValueError: an option has a value it cannot have.
    """

    solver: Solver = field(default_factory=lambda: Broyden(max_evaluations=30, tol=1e-6))
    on_failure: Literal["warn", "raise", "phantom", "ignore"] = "warn"
    failure_residual: float = 0.1
    order: int = 1
    at: Literal["equilibrium", "image"] = "equilibrium"

    def __post_init__(self) -> None:
        if self.on_failure not in ("warn", "raise", "phantom", "ignore"):
            raise ValueError(
                "on_failure must be 'warn', 'raise', 'phantom' or 'ignore', "
                f"got {self.on_failure!r}"
            )
        if not self.failure_residual > 0:
            raise ValueError(f"failure_residual must be positive, got {self.failure_residual}")
        check_at_least("order", self.order, 1)
        if self.at not in ("equilibrium", "image"):
            raise ValueError(f"at must be 'equilibrium' or 'image', got {self.at!r}")
        if self.at == "image" and self.order > 1:
            raise ValueError(f"order must be 1 where at is 'image', got {self.order}")

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star``, or its image under ``f``, with the exact gradient."""
        solve = self._solve_with(report)
        if self.at == "image":
            return attach_image_by_cotangent(f, z_star, solve)
        if self.order > 1:
            return attach_by_newton(f, z_star, self.order, solve)
        return attach_by_cotangent(f, z_star, solve)

    def _solve_with(self, report: Report | None) -> Callable[[Map, Tensor], Tensor]:
        def solve(vjp: Map, v: Tensor) -> Tensor:
            solution = self.solver.solve(lambda u: vjp(u) + v, v)
            if report is not None:
                report(solution)
            return self._checked(solution, vjp, v)

        return solve

    def _checked(self, solution: Solution, vjp: Map, v: Tensor) -> Tensor:
        if self.on_failure == "ignore":
            return solution.z
        failed = ~(self._relative_residual(solution) <= self.failure_residual)
        if not bool(failed.any()):
            return solution.z
        if self.on_failure == "phantom":
            phantom = neumann_series(vjp, v, _FALLBACK_STEPS, _FALLBACK_DAMPING)
            mask = failed.view(-1, *[1] * (v.dim() - 1))
            return phantom.where(mask, solution.z)
        if self.on_failure == "raise":
            raise AdjointError(
                f"the adjoint solve failed for {int(failed.sum())} of {failed.numel()} samples: "
                f"residual {solution.residual.max().item():.3g} after "
                f"{int(solution.evaluations.max())} evaluations"
            )
        # Without numbers, which would make every warning a new one, to be shown and remembered.
        warnings.warn(
            f"the adjoint solve failed for some samples: residual above {self.failure_residual:g} "
            "(a DEQ keeps it in last_adjoint)",
            AdjointWarning,
            stacklevel=2,
        )
        return solution.z

    def _relative_residual(self, solution: Solution) -> Tensor:
        if self.solver.stop == "relative":
            return solution.residual
        size = self.solver.size(solution.z)
        return solution.residual / size.clamp_min(torch.finfo(size.dtype).tiny)
