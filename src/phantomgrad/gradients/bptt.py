"""Backpropagation through the iterations of the solver."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from phantomgrad.gradients.base import GradientEstimator, Report
from phantomgrad.solvers import Map, Solver


@dataclass(frozen=True)
class BackpropThroughSolver(GradientEstimator):
    r"""Backpropagation through time: the gradient of the solver's own iterations.

    .. math::
        \frac{\partial h_T}{\partial \theta} = \sum_{t=0}^{T-1}
            \frac{\partial F}{\partial \theta}\Big|_{h_t}
            \prod_{s=t+1}^{T-1} \frac{\partial F}{\partial h}\Big|_{h_s}

    (Geng et al., 2021, eq. "exact-bptt", without damping; a damped solver's steps are those of its
    damped map, eq. "damped-bptt"). The solver must be one that autograd can record:
    :class:`phantomgrad.FixedPoint` and :class:`phantomgrad.Steps`, with which memory grows with
    the number of iterations, or :class:`phantomgrad.Reversible`, with which it does not.
    """

    needs_recorded_solve: ClassVar[bool] = True

    def adapt_solver(self, solver: Solver) -> Solver:
        """Return ``solver``, which must be one that autograd can record."""
        if not solver.differentiable:
            raise ValueError(
                f"{type(self).__name__} needs a solver that autograd can record "
                f"(FixedPoint, Reversible, Steps), got {type(solver).__name__}"
            )
        return solver

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star`` unchanged: the recorded solve has put it on the graph."""
        return z_star
