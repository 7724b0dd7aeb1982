"""A watch for solves that keep failing."""

import warnings

import torch

from phantomgrad.checks import check_at_least
from phantomgrad.solvers import Solution
from phantomgrad.solvers.context import may_read


class SolverWarning(UserWarning):
    """Many solves in a row have failed."""


class SolverHealth:
    """Warns when many solves in a row have failed, called with the solution of each.

    A solve has failed if no sample converged, or if at least half of them ended above ``residual``:
    near 1, a relative residual means that the iteration makes no progress. Solves without a
    tolerance (``tol=0``, :class:`phantomgrad.Steps`) never converge, and do not count.

    On the CPU each solution is read at once. On an accelerator the count stays there, and every
    ``patience`` solves the host waits for it once.

    Args:
        patience: number of consecutive failed solves after which to warn, and to count anew.
        residual: where at least half of the samples end above it, a solve has failed.
        name: what the warning calls the solver.
    """

    def __init__(
        self, *, patience: int = 100, residual: float = 0.9, name: str = "the solver"
    ) -> None:
        check_at_least("patience", patience, 1)
        if not residual > 0:
            raise ValueError(f"residual must be positive, got {residual}")
        self.patience, self.residual, self.name = patience, residual, name
        self._failed = torch.zeros((), dtype=torch.long)  # solves in a row
        self._calls = 0

    def __call__(self, solution: Solution) -> None:
        """Count a solve; give a :class:`SolverWarning` if it is one failure too many."""
        if len(solution.residual) == 0 or solution.tol == 0:
            return
        usable = solution.converged | (solution.residual < self.residual)
        failed = ~solution.converged.any() | (usable.float().mean() <= 0.5)
        before = self._failed.to(failed.device)
        # A number that has reached the limit stays above it until it is read.
        self._failed = torch.where(failed | (before >= self.patience), before + 1, 0)
        self._calls += 1
        if not may_read(failed.device) and self._calls % self.patience:
            return
        if int(self._failed) >= self.patience:
            self._failed = torch.zeros_like(self._failed)
            # Without numbers of this solve: Python shows, and remembers, each text once.
            warnings.warn(
                f"{self.name} has failed {self.patience} times in a row: no sample converged, or "
                f"half of the residuals were above {self.residual:g}. Likely causes: (1) the "
                "tolerance is out of reach of the budget or of the dtype: raise max_evaluations "
                "or tol; (2) the map does not contract (spectral_radius(f, z) is above 1): use "
                "Anderson or Broyden, damp the steps, bound the weights, or train with "
                "UnrolledPhantomGradient; (3) the map has no equilibrium, since it "
                "differs between evaluations or mixes the samples: replace nn.Dropout by "
                "phantomgrad.nn.VariationalDropout, or set coupled=True",
                SolverWarning,
                stacklevel=2,
            )
