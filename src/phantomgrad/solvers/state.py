"""What a solve knows of its samples while it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from phantomgrad.solvers.accelerators import ActivityFlag, may_read
from phantomgrad.solvers.base import Solution

if TYPE_CHECKING:
    from phantomgrad.solvers.iterative import IterativeSolver


class SolveState:
    """Best iterate, residual and counts of every sample during one solve."""

    def __init__(self, solver: IterativeSolver, z0: Tensor) -> None:
        batch = z0.shape[0]
        self._solver = solver
        self._start = self._best = z0
        self._best_residual = z0.new_full((batch,), torch.inf)
        self._zero: Tensor | None = None
        self.first_step: Tensor | None = None
        """The first step of a recorded solve."""
        self._at_start = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._count = 0
        self._evaluations = torch.zeros(batch, dtype=torch.long, device=z0.device)
        self._rejected: Tensor | int = 0
        self._active = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._may_read = may_read(z0.device)
        self._none_stopped = self._may_read and batch > 0
        self._flag = ActivityFlag(z0.device)
        self._trace: list[Tensor] = []

    def update(self, z: Tensor, fz: Tensor, g: Tensor, rejected: Tensor | int) -> None:
        """Take one evaluation into account; only active samples can change."""
        g, fz = g.detach(), fz.detach()  # only z stays on a graph
        if self._zero is None:
            self._zero = self._solver.zero(z.detach(), fz)
        residual = self._solver.residual(g, fz, self._zero)
        if self._solver.record_trace:
            self._trace.append(residual.masked_fill(~self._active, torch.nan))
        if isinstance(rejected, Tensor):
            self._rejected = torch.where(self._active, rejected, self._rejected)
        self._count += 1
        if self._none_stopped:
            low, high = map(float, residual.aminmax())
            if low >= self._solver.tol and high < math.inf:  # not for nan: min and max keep it
                self._keep_best(z, residual, residual < self._best_residual)
                return
            self._none_stopped = False
        self._keep_best(z, residual, self._active & (residual < self._best_residual))
        self._evaluations.masked_fill_(self._active, self._count)
        # False for nan and inf as well: a sample that has become non-finite stays stopped.
        self._active = self._active & (residual >= self._solver.tol) & (residual < torch.inf)

    def freeze(self, z: Tensor) -> Tensor:
        """Return ``z`` with the best iterate in place of samples that have stopped.

        In the backward pass, 0 times the infinite derivative of a dropped sample would be nan.
        """
        if self._none_stopped:
            return z  # not a copy, which the graph would keep
        return torch.where(self._active.unsqueeze(1), z, self._best)

    def _keep_best(self, z: Tensor, residual: Tensor, improved: Tensor) -> None:
        if self.first_step is not None:
            self._at_start = self._at_start & ~improved
        if self._may_read:
            if bool(improved.all()):
                self._best, self._best_residual = z, residual
                return
            if not bool(improved.any()):
                return
        self._best = torch.where(improved.unsqueeze(1), z, self._best)
        self._best_residual = torch.where(improved, residual, self._best_residual)

    def finished(self) -> bool:
        """Return whether every sample has stopped, on CUDA with the lag of the flag."""
        if self._none_stopped or (self._solver.tol == 0 and not self._may_read):
            return False  # with tol=0 no sample can converge: do not wait for the device
        return not self._flag.any(self._active)

    def solution(self) -> Solution:
        """Return the result, with flat states."""
        if self._none_stopped:
            self._evaluations.fill_(self._count)
        best = self._best.clone() if self._best is self._start else self._best
        if self.first_step is not None:
            best = torch.where(self._at_start.unsqueeze(1), self.first_step, best)
        converged = self._best_residual < self._solver.tol
        return Solution(
            z=best,
            residual=self._best_residual,
            iterations=self._evaluations - 1 - self._rejected,
            evaluations=self._evaluations,
            converged=converged,
            diverged=~(self._active | converged),
            trace=torch.stack(self._trace) if self._trace else None,
        )
