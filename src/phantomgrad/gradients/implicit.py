"""Implicit differentiation: the exact gradient, by an adjoint fixed-point solve."""

import warnings
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from phantomgrad.checks import check_at_least, check_choice
from phantomgrad.gradients.base import (
    GradientEstimator,
    Report,
    attach_by_cotangent,
    attach_image_by_cotangent,
)
from phantomgrad.gradients.newton import attach_by_newton
from phantomgrad.gradients.phantom import neumann_series
from phantomgrad.solvers import Broyden, Map, Solution, Solver
from phantomgrad.solvers.maps import working_dtype


class AdjointWarning(UserWarning):
    """The adjoint solve of some sample failed; its gradient is not the exact one."""


class AdjointError(RuntimeError):
    """The adjoint solve of some sample failed, with ``on_failure="raise"``."""


@dataclass(frozen=True, kw_only=True)
class ImplicitGradient(GradientEstimator):
    r"""The exact gradient by the implicit function theorem.

    The backward pass solves the adjoint equation with any solver, from ``u = v``,

    .. math:: u = J^\top u + v, \qquad J = \frac{\partial f}{\partial z}\Big|_{z^*},
              \quad v = \frac{\partial \mathcal{L}}{\partial z^*} ,

    and returns :math:`(\partial f/\partial\theta)^\top u` (Bai et al., 2019; Geng et al., 2021,
    eq. "true-grad"). It needs the memory of one graph of ``f``, whatever the solver does.

    The adjoint solve of a sample has *failed* if its relative residual is above
    ``failure_residual`` or not finite. The best iterate is used, and the start ``u = v`` (the
    one-step gradient) counts as one, so that a failure never gives a zero gradient.

    Args:
        on_failure: ``"warn"`` (an :class:`AdjointWarning`, which Python shows once), ``"raise"``
            (an :class:`AdjointError`), ``"phantom"`` (the Neumann phantom gradient, k = 5,
            lambda = 0.5, for the failed samples), or ``"ignore"``, the only one that does not
            synchronise with an accelerator.
        failure_residual: relative residual above which the adjoint solve has failed.
        order: how many derivatives are exact. 2 gives exact second derivatives
            (``create_graph=True``) for two more evaluations of ``f``; 1 refuses them.
        at: where the Jacobian is taken. ``"equilibrium"``: at the result of the solver, which is
            also the value. ``"image"``: the value is :math:`\hat z = f(z^*)`, J is taken there and
            :math:`\partial f / \partial\theta` at z*, as in the code of MDEQ (Bai et al., 2020),
            for one more evaluation and a second graph of ``f``; only with ``order=1``.
    """

    solver: Solver = field(default_factory=lambda: Broyden(max_evaluations=30, tol=1e-6))
    on_failure: Literal["warn", "raise", "phantom", "ignore"] = "warn"
    failure_residual: float = 0.1
    order: int = 1
    at: Literal["equilibrium", "image"] = "equilibrium"

    def __post_init__(self) -> None:
        check_choice("on_failure", self.on_failure, ("warn", "raise", "phantom", "ignore"))
        if not self.failure_residual > 0:
            raise ValueError(f"failure_residual must be positive, got {self.failure_residual}")
        check_at_least("order", self.order, 1)
        check_choice("at", self.at, ("equilibrium", "image"))
        if self.at == "image" and self.order > 1:
            raise ValueError(f"order must be 1 with at='image', got {self.order}")

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star``, or its image under ``f``, with the exact gradient."""
        # Autocast is not active in the backward pass, but its precision is that of the graph.
        solver = self.solver.reachable(working_dtype(z_star))

        def solve(op: Map, v: Tensor) -> Tensor:
            solution = solver.solve(lambda u: op(u) + v, v)
            if report is not None:
                report(solution)
            return self._checked(solution, op, v)

        if self.at == "image":
            return attach_image_by_cotangent(f, z_star, solve)
        if self.order > 1:
            return attach_by_newton(f, z_star, self.order, solve)
        return attach_by_cotangent(f, z_star, solve)

    def _checked(self, solution: Solution, op: Map, v: Tensor) -> Tensor:
        if self.on_failure == "ignore":
            return solution.z
        failed = ~(self.solver.relative_residual(solution) <= self.failure_residual)
        if not bool(failed.any()):
            return solution.z
        if self.on_failure == "phantom":
            phantom = neumann_series(op, v, steps=5, damping=0.5)
            return phantom.where(failed.view(-1, *[1] * (v.dim() - 1)), solution.z)
        if self.on_failure == "raise":
            raise AdjointError(
                f"the adjoint solve failed for {int(failed.sum())} of {failed.numel()} samples: "
                f"residual {solution.residual.max().item():.3g} after "
                f"{int(solution.evaluations.max())} evaluations"
            )
        # Without the values: Python shows and remembers every warning with a new text.
        warnings.warn(
            f"the adjoint solve failed for some samples: residual above {self.failure_residual:g} "
            "(see last_adjoint of the DEQ)",
            AdjointWarning,
            stacklevel=2,
        )
        return solution.z
