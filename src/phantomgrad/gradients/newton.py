"""Exact derivatives of any order by Newton steps at the equilibrium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from phantomgrad.gradients.linearization import Linearization
from phantomgrad.solvers import Map

LinearSolve = Callable[[Map, Tensor], Tensor]
"""``solve(op, v)`` returns u with ``u = op(u) + v``."""


class _InverseProduct(torch.autograd.Function):
    """``(I - J^T)^-1 v``, or ``(I - J)^-1 v``; each is the other's derivative."""

    @staticmethod
    def forward(
        ctx: Any, v: Tensor, at: Linearization, solve: LinearSolve, transposed: bool
    ) -> Tensor:
        ctx.at, ctx.solve, ctx.transposed = at, solve, transposed
        return solve(at.vjp if transposed else at.jvp, v)

    @staticmethod
    def backward(ctx: Any, w: Tensor) -> tuple[Tensor, None, None, None]:
        return _InverseProduct.apply(w, ctx.at, ctx.solve, not ctx.transposed), None, None, None


class _NewtonStep(torch.autograd.Function):
    """``z + (I - J)^-1 r`` with the inverse held constant; the value keeps ``z``, as r is 0."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, r: Tensor, at: Linearization, solve: LinearSolve) -> Tensor:
        ctx.at, ctx.solve = at, solve
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return v, _InverseProduct.apply(v, ctx.at, ctx.solve, True), None, None


def attach_by_newton(f: Map, z_star: Tensor, order: int, solve: LinearSolve) -> Tensor:
    r"""Attach ``z_star`` with its first ``order`` derivatives exact.

    .. math:: z_{i+1} = z_i + (I - J)^{-1} (f(z_i) - z_i), \qquad z_0 = z^* \text{ detached}

    with :math:`(I - J)^{-1}` a constant linear map taken at the equilibrium. Each such (chord)
    Newton step leaves the value and makes one more derivative with respect to the parameters
    exact: if :math:`z_i` has n exact derivatives, the error in the next one enters the bracket
    times :math:`-(I - J)` and cancels against that of :math:`z_i`.
    """
    at = Linearization(f, z_star)
    z = z_star.detach()
    for _ in range(order):
        z = _NewtonStep.apply(z, f(z) - z, at, solve)
    return z
