"""How a loss on the equilibrium reaches the parameters: the contract of every estimator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from phantomgrad.gradients.damping import AdaptiveDamping
from phantomgrad.gradients.linearization import Linearization
from phantomgrad.solvers import Map, Solution

Report = Callable[[Solution], None]
"""Receives what an adjoint solver found, during the backward pass."""


class GradientEstimator(ABC):
    r"""Puts an equilibrium on the autograd graph.

    The exact gradient of a loss :math:`\mathcal{L}(h^*)` is (Geng et al., 2021, eq. "true-grad")

    .. math::
        \frac{\partial \mathcal{L}}{\partial \theta} = \frac{\partial F}{\partial \theta}
            \Big(I - \frac{\partial F}{\partial h}\Big)^{-1} \frac{\partial \mathcal{L}}{\partial h}

    in the paper's layout, :math:`(\partial a / \partial b)_{ij} = \partial a_j / \partial b_i`.
    An estimator puts a matrix :math:`A` in the place of the first two factors.
    """

    needs_recorded_solve: ClassVar[bool] = False
    """Whether the solve itself must be on the graph (backpropagation through the solver)."""

    @property
    def adaptation(self) -> AdaptiveDamping | None:
        """How its damping follows the model, where it does."""
        return None

    def damped(self, damping: float) -> GradientEstimator:
        """Return this estimator with ``damping`` in the place of one that follows the model."""
        return self

    @abstractmethod
    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star`` on the graph of the parameters and inputs that ``f`` closes over.

        Args:
            f: the map, ``(B, *state)`` to the same shape, differentiable.
            z_star: its equilibrium as a solver found it, ``(B, *state)``.
            report: called with the :class:`Solution` of each adjoint solve, where there is one.
        """


class _CotangentTransform(torch.autograd.Function):
    """The identity in value, ``z_star``; its backward hands ``transform(cotangent)`` to ``fz``."""

    @staticmethod
    def forward(
        ctx: Any, fz: Tensor, z_star: Tensor, transform: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.transform = transform
        return z_star.clone()  # torch lets nobody write into a view that a custom function returns

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # true inside a backward exactly under create_graph=True
            raise RuntimeError(
                "this gradient estimate has no derivative of its own (create_graph=True): "
                "use ImplicitGradient(order=2) for exact second derivatives, or "
                "UnrolledPhantomGradient, which is the gradient of the steps it unrolls"
            )
        return ctx.transform(cotangent), None, None


def attach_by_cotangent(
    f: Map,
    z_star: Tensor,
    transform: Callable[[Map, Tensor], Tensor],
    value: Literal["equilibrium", "image"] = "equilibrium",
) -> Tensor:
    """Attach ``z_star`` through one application of ``f`` and a transformed cotangent.

    The gradient becomes ``df/dtheta^T u`` with ``u = transform(vjp, v)``, where ``v`` is the
    cotangent of the equilibrium and ``vjp(u) = J^T u`` at ``z_star``. One graph of ``f`` serves
    every vector-Jacobian product and the final step: memory does not grow with their number.
    The value is ``z_star`` or its image, ``f(z_star)``.
    """
    at = Linearization(f, z_star)
    shown = at.value.to(z_star.dtype) if value == "image" else z_star
    if at.is_constant:  # a frozen map: no adjoint is solved for nobody
        return shown.detach()
    out: Tensor = _CotangentTransform.apply(
        at.value, shown.detach(), lambda v: transform(at.vjp, v)
    )
    return out


def attach_image_by_cotangent(
    f: Map, z_star: Tensor, transform: Callable[[Map, Tensor], Tensor]
) -> Tensor:
    """Attach ``f(z_star)`` through that very application, with the products taken at the image.

    As :func:`attach_by_cotangent`, but the value is that of ``f``, and ``vjp(u) = J^T u`` at
    ``f(z_star)``: a second graph of ``f``, which the final step does not go through.
    """
    image = f(z_star.detach()).to(z_star.dtype)
    if not image.requires_grad:  # a frozen map: no adjoint is solved for nobody
        return image
    at = Linearization(f, image)
    out: Tensor = _CotangentTransform.apply(image, image.detach(), lambda v: transform(at.vjp, v))
    return out
