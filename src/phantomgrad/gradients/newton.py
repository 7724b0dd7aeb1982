"""Exact derivatives of any order by Newton steps at the equilibrium."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from phantomgrad.context import recording
from phantomgrad.jacobian import Linearization, linearizing
from phantomgrad.solvers import Map

LinearSolve = Callable[[Map, Tensor], Tensor]
"""``solve(op, v)`` returns u with ``u = op(u) + v``."""


class _InverseProduct(torch.autograd.Function):
    """``(I - J^T)^-1 v`` or ``(I - J)^-1 v``; each is the derivative of the other."""

    @staticmethod
    def forward(
        ctx: Any, v: Tensor, at: Linearization, solve: LinearSolve, transposed: bool
    ) -> Tensor:
        ctx.at, ctx.solve, ctx.transposed = at, solve, transposed
        if not bool(v.any()):  # what reaches all but the last Newton step in a first derivative
            return torch.zeros_like(v)
        return solve(at.vjp if transposed else at.jvp, v)

    @staticmethod
    def backward(ctx: Any, w: Tensor) -> tuple[Tensor, None, None, None]:
        return _InverseProduct.apply(w, ctx.at, ctx.solve, not ctx.transposed), None, None, None


class _Product(torch.autograd.Function):
    """``J^T u`` or ``J u``; each is the derivative of the other."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, at: Linearization, transposed: bool) -> Tensor:
        ctx.at, ctx.transposed = at, transposed
        return at.vjp(u) if transposed else at.jvp(u)

    @staticmethod
    def backward(ctx: Any, w: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(w, ctx.at, not ctx.transposed), None, None


class _NewtonStep(torch.autograd.Function):
    """``(I - J)^-1 (fz - J z)`` with both matrices held constant; the value stays ``z``."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, fz: Tensor, at: Linearization, solve: LinearSolve) -> Tensor:
        ctx.at, ctx.solve = at, solve
        return z.clone()  # torch forbids in-place changes of a view from a custom function

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        u = _InverseProduct.apply(v, ctx.at, ctx.solve, True)
        into_z = -_Product.apply(u, ctx.at, True) if ctx.needs_input_grad[0] else None
        return into_z, u, None, None


def attach_by_newton(f: Map, z_star: Tensor, order: int, solve: LinearSolve) -> Tensor:
    r"""Attach ``z_star`` with its first ``order`` derivatives exact.

    .. math:: z_{i+1} = (I - J)^{-1} (f(z_i) - J z_i), \qquad z_0 = z^* \text{ detached}

    with :math:`J` and :math:`(I - J)^{-1}` constant linear maps, taken at the equilibrium. Each
    such (chord) Newton step keeps the value and makes one more derivative with respect to the
    parameters exact: if :math:`z_i` has n exact derivatives, the error in the next one enters the
    bracket times the Jacobian of f minus J, which vanishes. For the same reason a first derivative
    costs one adjoint solve for every order.
    """
    if not recording():  # only the value counts
        return z_star
    at = Linearization(f, z_star)
    z = z_star.detach()
    for _ in range(order):
        # The view sums what comes back through f before it meets, and cancels, J^T u.
        with linearizing():
            fz = f(z.view_as(z))
        z = _NewtonStep.apply(z, fz, at, solve)
    return z
