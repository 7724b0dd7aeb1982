"""What the backward pass does with samples whose adjoint solve has failed."""

import warnings
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from phantomgrad.gradients.phantom import neumann_series
from phantomgrad.solvers import LinearSolver, Map, Solution
from phantomgrad.solvers.context import traced
from phantomgrad.solvers.maps import per_sample

_REMEDIES = (
    "raise max_evaluations of the gradient's solver, use GMRES, or choose on_failure='phantom'"
)


class AdjointWarning(UserWarning):
    """The adjoint solve of some sample failed; its gradient is not the exact one."""


class AdjointError(RuntimeError):
    """The adjoint solve of some sample failed, with ``on_failure="raise"``."""


@dataclass(frozen=True)
class Remedy:
    """How an :class:`.ImplicitGradient` handles failed adjoint solves (its ``on_failure``)."""

    kind: Literal["warn", "raise", "phantom", "ignore"]
    residual: float
    solver: LinearSolver

    def applied(self, solution: Solution, op: Map, v: Tensor) -> Tensor:
        """Return u of the solved equation ``u = op(u) + v``, replaced where the solve failed."""
        if self.kind == "ignore" or traced():
            return solution.z
        residual = self.solver.relative_residual(solution)
        failed = ~(residual <= self.residual)
        if not bool(failed.any()):
            return solution.z
        if self.kind == "phantom":
            phantom = neumann_series(op, v, steps=5, damping=0.5)
            return phantom.where(per_sample(failed, v), solution.z)
        if self.kind == "raise":
            raise AdjointError(
                f"the adjoint solve failed for {int(failed.sum())} of {failed.numel()} samples: "
                f"relative residual {residual.max().item():.3g}, above {self.residual:g}, after "
                f"{int(solution.evaluations.max())} evaluations; {_REMEDIES}"
            )
        # Without numbers of this solve: Python shows, and remembers, each text once.
        warnings.warn(
            f"the adjoint solve failed for some samples: relative residual above {self.residual:g} "
            f"(see last_adjoint of the DEQ); {_REMEDIES}",
            AdjointWarning,
            stacklevel=2,
        )
        return solution.z
