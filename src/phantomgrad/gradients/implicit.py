"""Implicit differentiation: the exact gradient, by an adjoint fixed-point solve."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_choice
from phantomgrad.context import readable
from phantomgrad.gradients.base import (
    GradientEstimator,
    Report,
    attach_by_cotangent,
    attach_image_by_cotangent,
)
from phantomgrad.gradients.newton import attach_by_newton
from phantomgrad.precision import working_dtype
from phantomgrad.solvers import Broyden, Inverse, LinearSolver, Map, Solution, Solver
from phantomgrad.solvers.base import flat, per_sample

_REMEDIES = "raise max_evaluations of the gradient's solver, use GMRES, or a phantom gradient"


class AdjointWarning(UserWarning):
    """The adjoint solve of a sample failed: its gradient is not the exact one."""


class AdjointError(RuntimeError):
    """The adjoint solve of a sample failed, with ``on_failure="raise"``."""


@dataclass(frozen=True, kw_only=True)
class ImplicitGradient(GradientEstimator):
    r"""The exact gradient by the implicit function theorem.

    The backward pass solves the adjoint equation with any solver, starting from ``u = v``,

    .. math:: u = J^\top u + v, \qquad J = \frac{\partial f}{\partial z}\Big|_{z^*},
              \quad v = \frac{\partial \mathcal{L}}{\partial z^*} ,

    and returns :math:`(\partial f/\partial\theta)^\top u` (Bai et al., 2019; Geng et al., 2021,
    eq. "true-grad"). It needs the memory of one graph of ``f``, whatever the solver does.

    The adjoint solve of a sample *fails* if its relative residual ends above ``failure_residual``
    or is not finite; ``on_failure`` says what to do then.

    Args:
        solver: of the adjoint equation, by default ``Broyden(max_evaluations=30, tol=1e-6)``.
        on_failure: ``"warn"`` gives an :class:`AdjointWarning`, which Python shows once, and uses
            the best iterate, or the start ``u = v`` (the one-step gradient) where that leaves a
            smaller difference :math:`J^\top u + v - u`. ``"raise"`` raises an
            :class:`AdjointError`. ``"ignore"`` uses the best iterate, and with ``order=1`` never
            waits for an accelerator.
        failure_residual: relative residual above which an adjoint solve fails.
        order: how many derivatives are exact. 2 gives exact second derivatives
            (``create_graph=True``) for two more evaluations of ``f``; 1 refuses them. With 2
            or more, derivatives above ``order`` are neither refused nor exact.
        at: where the Jacobian is taken. ``"equilibrium"``: at the result of the solver, which is
            also the value. ``"image"``: the value is :math:`\hat z = f(z^*)`, J is taken there and
            :math:`\partial f / \partial\theta` at z*, as in the code of MDEQ (Bai et al., 2020),
            for one more evaluation and a second graph of ``f``; only with ``order=1``.
        preconditioner: ``"forward"`` solves :math:`u = u + P (J^\top u + v - u)` instead, from
            ``u = P v``. P is the transpose of the estimate of :math:`(I - J)^{-1}` that the forward
            solve of the :class:`phantomgrad.DEQ` has made; its solver must be Broyden, whose steps
            are kept until the backward pass. Outside of a DEQ, pass the ``inverse`` of a solution
            of ``Broyden(keep_inverse=True)``. Residuals are then those of this equation. Only with
            ``order=1``.
    """

    solver: LinearSolver = field(default_factory=lambda: Broyden(max_evaluations=30, tol=1e-6))
    on_failure: Literal["warn", "raise", "ignore"] = "warn"
    failure_residual: float = 0.1
    order: int = 1
    at: Literal["equilibrium", "image"] = "equilibrium"
    preconditioner: Literal["forward"] | Inverse | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.solver, LinearSolver):
            raise TypeError(f"solver must be a phantomgrad.LinearSolver, got {self.solver!r}")
        check_choice("on_failure", self.on_failure, ("warn", "raise", "ignore"))
        if not self.failure_residual > 0:
            raise ValueError(f"failure_residual must be positive, got {self.failure_residual}")
        check_at_least("order", self.order, 1)
        check_choice("at", self.at, ("equilibrium", "image"))
        if self.at == "image" and self.order > 1:
            raise ValueError(f"order must be 1 with at='image', got {self.order}")
        if not isinstance(self.preconditioner, Inverse):
            check_choice("preconditioner", self.preconditioner, ("forward", None))
        if self.preconditioner is not None and self.order > 1:
            raise ValueError(f"order must be 1 with a preconditioner, got {self.order}")

    def adapt_solver(self, solver: Solver) -> Solver:
        """Return ``solver``, which keeps its inverse if that is the preconditioner."""
        if self.preconditioner != "forward":
            return solver
        if not isinstance(solver, Broyden):
            got = type(solver).__name__
            raise ValueError(f"preconditioner='forward' needs the solver Broyden, got {got}")
        return replace(solver, keep_inverse=True)

    def after(self, solution: Solution) -> Self:
        """Return the estimator with the preconditioner that ``solution`` has."""
        wanted = self.preconditioner == "forward"
        return replace(self, preconditioner=solution.inverse) if wanted else self

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star``, or ``f(z_star)`` with ``at="image"``, with the exact gradient."""
        if self.preconditioner == "forward":
            raise ValueError(
                "preconditioner='forward' is for a DEQ: here, pass solution.inverse of a "
                "Broyden(keep_inverse=True)"
            )
        # Autocast is not active in the backward pass, but its precision is that of the graph.
        solver = self.solver.for_dtype(working_dtype(z_star))
        estimator, layout = self, None
        tensors: list[Tensor] = []
        if isinstance(self.preconditioner, Inverse):
            # The graph holds its tensors where autograd can free them, not in a function.
            estimator = replace(self, preconditioner=None)
            layout = self.preconditioner.layout
            tensors = [self.preconditioner.steps, self.preconditioner.weights]

        def solve(op: Map, v: Tensor, *kept: Tensor) -> Tensor:
            scale = _scale(v)
            v = v / scale
            linear, constant = op, v
            if layout is not None:
                p = Inverse(kept[0], kept[1], layout).transposed
                linear, constant = lambda u: u + p(op(u) - u), p(v)
            solution = solver.solve_linear(linear, constant)
            if report is not None:
                report(solution._replace(z=solution.z * scale))
            return estimator._remedied(solution, op, v) * scale

        if self.at == "image":
            return attach_image_by_cotangent(f, z_star, solve, tensors)
        if self.order > 1:
            return attach_by_newton(f, z_star, self.order, solve)
        return attach_by_cotangent(f, z_star, solve, kept=tensors)

    def _remedied(self, solution: Solution, op: Map, v: Tensor) -> Tensor:
        """Return u of the solved equation ``u = op(u) + v``, replaced where the solve failed."""
        if self.on_failure == "ignore" or not readable(v):
            return solution.z
        residual = self.solver.relative_residual(solution)
        failed = ~(residual <= self.failure_residual)
        if not bool(failed.any()):
            return solution.z
        above = f"above {self.failure_residual:g}"
        if self.on_failure == "raise":
            raise AdjointError(
                f"the adjoint solve failed for {int(failed.sum())} of {failed.numel()} samples: "
                f"relative residual {residual.max().item():.3g}, {above}, after "
                f"{int(solution.evaluations.max())} evaluations; {_REMEDIES}"
            )
        # Without numbers of this solve: Python shows, and remembers, each text once.
        warnings.warn(
            f"the adjoint solve failed for some samples: relative residual {above} "
            f"(see last_adjoint of the DEQ); {_REMEDIES}",
            AdjointWarning,
            stacklevel=2,
        )
        # Where a solver diverges, u grows and the relative residual falls: compare absolute ones.
        grown = _size(op(solution.z) + v - solution.z) > _size(op(v))
        return v.where(per_sample(failed & grown, v), solution.z)


def _size(x: Tensor) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(flat(x), dim=1)
    return size


def _scale(v: Tensor) -> Tensor:
    """Return a power of two for each sample of ``v`` that is too small or large to be squared."""
    largest = flat(v).abs().amax(dim=1)
    power = torch.exp2(largest.log2().floor())
    extreme = ((largest < 2.0**-40) | (largest > 2.0**40)) & (power > 0) & (power < torch.inf)
    return per_sample(torch.where(extreme, power, 1), v)
