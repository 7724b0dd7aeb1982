"""The contract of gradient estimators: how a loss on an equilibrium reaches the parameters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from phantomgrad.context import recording
from phantomgrad.jacobian import Linearization
from phantomgrad.solvers import Map, Solution, Solver
from phantomgrad.solvers.base import ParametricMap

Report = Callable[[Solution], None]
"""Receives the result of an adjoint solve, during the backward pass."""

Transform = Callable[..., Tensor]
"""``transform(vjp, v, *kept)`` returns the cotangent u of ``f(z)`` for the cotangent v of ``z*``.

The cotangent of a tensor is the gradient of the loss with respect to it. ``kept`` are tensors that
autograd saves, and frees after the backward pass.
"""


class GradientEstimator(ABC):
    r"""Attaches an equilibrium to the autograd graph: the same value, with a gradient.

    The exact gradient of a loss :math:`\mathcal{L}(h^*)` is (Geng et al., 2021, eq. "true-grad")

    .. math::
        \frac{\partial \mathcal{L}}{\partial \theta} = \frac{\partial F}{\partial \theta}
            \Big(I - \frac{\partial F}{\partial h}\Big)^{-1} \frac{\partial \mathcal{L}}{\partial h}

    in the paper's layout, :math:`(\partial a / \partial b)_{ij} = \partial a_j / \partial b_i`.
    An estimator replaces the first two factors by a matrix :math:`A`.
    """

    needs_recorded_solve: ClassVar[bool] = False
    """Whether the solve itself must be on the graph (backpropagation through the solver)."""

    @property
    def state(self) -> nn.Module | None:
        """What the estimator remembers from one pass to the next, ``None`` for most.

        A :class:`phantomgrad.DEQ` copies an estimator that has a state, and registers the state as
        a submodule, so that it is saved and restored with the model.
        """
        return None

    def observe(self, f: Map, z_star: Tensor) -> None:
        """Update the state; in training mode, a layer calls this before it calls ``attach``."""
        return

    def adapt_solver(self, solver: Solver) -> Solver:
        """Return the solver of passes with a gradient: ``solver``, or a changed copy.

        A ``ValueError`` says that this estimator cannot use it; a layer asks as soon as it is made.
        """
        return solver

    def after(self, solution: Solution) -> Self:
        """Return the estimator for one pass, given the ``solution`` of its solve."""
        return self

    @abstractmethod
    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star`` with a gradient to the parameters and inputs that ``f`` uses.

        ``report`` is called with the :class:`Solution` of each adjoint solve, if there is one.
        """


class _CotangentTransform(torch.autograd.Function):
    """``z_star`` in value; its backward passes ``transform(vjp, cotangent)`` on to ``fz``."""

    @staticmethod
    def forward(
        ctx: Any, fz: Tensor, z_star: Tensor, transform: Transform, vjp: Map, *kept: Tensor
    ) -> Tensor:
        ctx.transform, ctx.vjp = transform, vjp
        ctx.save_for_backward(*kept)
        return z_star.clone()  # torch forbids in-place changes of a view from a custom function

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # in a backward pass, true only under create_graph=True
            raise RuntimeError(
                "this gradient estimate has no derivative of its own (create_graph=True): use "
                "ImplicitGradient(order=2) for exact second derivatives, or "
                "UnrolledPhantomGradient, which is the gradient of the steps it unrolls"
            )
        kept = ctx.saved_tensors
        return ctx.transform(ctx.vjp, cotangent, *kept), None, None, None, *[None] * len(kept)


def attach_by_cotangent(
    f: Map,
    z_star: Tensor,
    transform: Transform,
    value: Literal["equilibrium", "image"] = "equilibrium",
    kept: Sequence[Tensor] = (),
) -> Tensor:
    """Attach ``z_star`` through one evaluation of ``f`` and a transformed cotangent.

    The gradient becomes ``df/dtheta^T u`` with ``u = transform(vjp, v)``, where ``v`` is the
    cotangent of the equilibrium and ``vjp(u) = J^T u`` at ``z_star``. One graph of ``f`` serves
    all vector-Jacobian products and the final step. The value is ``z_star`` or ``f(z_star)``.
    """
    if not recording() or _is_frozen(f, z_star):  # only the value counts
        return z_star if value == "equilibrium" else f(z_star).to(z_star.dtype)
    at = Linearization(f, z_star)
    shown = at.value.to(z_star.dtype) if value == "image" else z_star
    out: Tensor = _CotangentTransform.apply(at.value, shown.detach(), transform, at.vjp, *kept)
    return out


def _is_frozen(f: Map, z: Tensor) -> bool:
    """Return whether ``f`` depends on nothing that gets a gradient, so that none is computed."""
    if not isinstance(f, ParametricMap) or f.tensors:
        return False
    return not f(z.detach()).requires_grad


def attach_image_by_cotangent(
    f: Map, z_star: Tensor, transform: Transform, kept: Sequence[Tensor] = ()
) -> Tensor:
    """Attach ``f(z_star)`` by ``transform(vjp, v)``, with the Jacobian taken at ``f(z_star)``."""
    image = f(z_star.detach()).to(z_star.dtype)
    if not image.requires_grad:
        return image
    vjp = Linearization(f, image).vjp
    out: Tensor = _CotangentTransform.apply(image, image.detach(), transform, vjp, *kept)
    return out
