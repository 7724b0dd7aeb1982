"""Warnings of layers whose solves keep failing."""

import warnings
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from phantomgrad.checks import check_at_least
from phantomgrad.context import cheap_to_read
from phantomgrad.deq import DEQ
from phantomgrad.solvers import Solution


class SolverWarning(UserWarning):
    """Many solves in a row have failed."""


class SolverMonitor(Callback):
    """Warns when the solves of an equilibrium layer fail ``patience`` training steps in a row.

    For any Trainer and model. A solve fails if no sample converges, or if at least half of its
    residuals exceed ``residual``: near 1, a relative residual means no progress. Solves without a
    tolerance (``tol=0``, :class:`phantomgrad.Steps`) do not count. With several processes, only the
    first one watches.

    On the CPU each solution is read at once. On an accelerator the count stays there, and every
    ``patience`` steps the host waits for it once.
    """

    def __init__(self, patience: int = 100, residual: float = 0.9) -> None:
        check_at_least("patience", patience, 1)
        if not residual > 0:
            raise ValueError(f"residual must be positive, got {residual}")
        self._settings = patience, residual
        self._watched: list[tuple[DEQ, Failures]] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._watched = [
            (layer, Failures(*self._settings, f"the solver of {name}"))
            for name, layer in pl_module.named_modules()
            if isinstance(layer, DEQ) and trainer.is_global_zero
        ]

    def on_train_batch_end(self, *_: Any) -> None:
        for layer, failures in self._watched:
            if layer.last_solution is not None:
                failures.count(layer.last_solution)


class Failures:
    """Counts failed solves in a row."""

    def __init__(self, patience: int, residual: float, name: str) -> None:
        self._patience, self._residual, self._name = patience, residual, name
        self._failed = torch.zeros((), dtype=torch.long)
        self._calls = 0

    def count(self, solution: Solution) -> None:
        """Count a solve; give a :class:`SolverWarning` if it is one failure too many."""
        if len(solution.residual) == 0 or solution.tol == 0:
            return
        usable = solution.converged | (solution.residual < self._residual)
        failed = ~solution.converged.any() | (usable.float().mean() <= 0.5)
        before = self._failed.to(failed.device)
        # A number that has reached the limit stays above it until it is read.
        self._failed = torch.where(failed | (before >= self._patience), before + 1, 0)
        self._calls += 1
        if not cheap_to_read(failed) and self._calls % self._patience:
            return
        if int(self._failed) >= self._patience:
            self._failed = torch.zeros_like(self._failed)
            # Without numbers of this solve: Python shows, and remembers, each text once.
            warnings.warn(
                f"{self._name} has failed {self._patience} times in a row: no sample converged, or "
                f"half of the residuals were above {self._residual:g}. Likely causes: (1) the "
                "tolerance is out of reach of the budget or of the dtype: raise max_evaluations "
                "or tol; (2) the map does not contract (spectral_radius(f, z) is above 1): use "
                "Anderson or Broyden, damp the steps, bound the weights, or train with "
                "UnrolledPhantomGradient; (3) the map has no equilibrium, since it "
                "differs between evaluations or mixes the samples: replace nn.Dropout by "
                "phantomgrad.nn.VariationalDropout, or set coupled=True",
                SolverWarning,
                stacklevel=2,
            )
