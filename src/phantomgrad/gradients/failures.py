"""What the backward pass does with samples whose adjoint solve has failed."""

import warnings
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from phantomgrad.gradients.phantom import neumann_series
from phantomgrad.solvers import LinearSolver, Map, Solution
from phantomgrad.solvers.accelerators import traced


class AdjointWarning(UserWarning):
    """The adjoint solve of some sample failed; its gradient is not the exact one."""


class AdjointError(RuntimeError):
    """The adjoint solve of some sample failed, with ``on_failure="raise"``."""


@dataclass(frozen=True)
class Remedy:
    """``on_failure`` and ``failure_residual`` of an :class:`.ImplicitGradient`, and its solver."""

    kind: Literal["warn", "raise", "phantom", "ignore"]
    residual: float
    solver: LinearSolver

    def applied(self, solution: Solution, op: Map, v: Tensor) -> Tensor:
        """Return u of the solved equation ``u = op(u) + v``, replaced where the solve failed."""
        if self.kind == "ignore" or traced():
            return solution.z
        failed = ~(self.solver.relative_residual(solution) <= self.residual)
        if not bool(failed.any()):
            return solution.z
        if self.kind == "phantom":
            phantom = neumann_series(op, v, steps=5, damping=0.5)
            return phantom.where(failed.view(-1, *[1] * (v.dim() - 1)), solution.z)
        if self.kind == "raise":
            raise AdjointError(
                f"the adjoint solve failed for {int(failed.sum())} of {failed.numel()} samples: "
                f"residual {solution.residual.max().item():.3g} after "
                f"{int(solution.evaluations.max())} evaluations"
            )
        # Without the values: Python shows and remembers every warning with a new text.
        warnings.warn(
            f"the adjoint solve failed for some samples: residual above {self.residual:g} "
            "(see last_adjoint of the DEQ)",
            AdjointWarning,
            stacklevel=2,
        )
        return solution.z
