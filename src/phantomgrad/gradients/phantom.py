"""The two phantom gradients of Geng et al. (2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_damping
from phantomgrad.gradients.base import GradientEstimator, Report, attach_by_cotangent
from phantomgrad.gradients.damping import AdaptiveDamping
from phantomgrad.solvers import Map


@dataclass(frozen=True)
class PhantomGradient(GradientEstimator):
    r"""What the two have in common: k steps, damped by a number or by one that follows the model.

    Args:
        steps: k, at least 1.
        damping: :math:`\lambda`, in (0, 1], or an :class:`AdaptiveDamping`; ``"adaptive"`` is one
            with its defaults.

    Raises:
        ValueError: a number is out of its range.
    """

    steps: int
    damping: float | AdaptiveDamping | Literal["adaptive"]

    def __post_init__(self) -> None:
        check_at_least("steps", self.steps, 1)
        if self.damping == "adaptive":  # a word can take the place of a number on a command line
            object.__setattr__(self, "damping", AdaptiveDamping())
        elif not isinstance(self.damping, AdaptiveDamping):
            check_damping(self.damping)

    @property
    def adaptation(self) -> AdaptiveDamping | None:
        """How the damping follows the model, where it is no number."""
        return self.damping if isinstance(self.damping, AdaptiveDamping) else None

    def damped(self, damping: float) -> PhantomGradient:
        """Return this estimator with ``damping`` in the place of one that follows the model."""
        return self if self.adaptation is None else replace(self, damping=damping)

    def fixed_damping(self) -> float:
        """Return the damping.

        Raises:
            ValueError: it follows a model, and no number has taken its place.
        """
        if not isinstance(self.damping, float | int):
            raise ValueError(
                "damping must be a number where an estimator is used without a DEQ, "
                f"got {self.damping}"
            )
        return self.damping


@dataclass(frozen=True)
class UnrolledPhantomGradient(PhantomGradient):
    r"""Unrolling-based phantom gradient (UPG): backpropagate through k damped steps.

    From :math:`h_0 = h^*`, :math:`h_{t+1} = \lambda F(h_t) + (1 - \lambda) h_t` is recorded for
    :math:`t < k`, which gives (Geng et al., 2021, eq. "A-unroll")

    .. math::
        A^{\mathrm{unr}}_{k,\lambda} = \lambda \sum_{t=0}^{k-1}
            \frac{\partial F}{\partial \theta}\Big|_{h_t} \prod_{s=t+1}^{k-1}
            \Big(\lambda \frac{\partial F}{\partial h}\Big|_{h_s} + (1 - \lambda) I\Big).

    The value is :math:`h_k`, which is :math:`h^*` up to the residual of the solver; the gradient
    is the exact one of these k steps, so second derivatives work. Time and memory are O(k).
    ``steps=1, damping=1`` is the one-step gradient (JFB).

    Args:
        steps: k, at least 1.
        damping: :math:`\lambda`, in (0, 1], or an :class:`AdaptiveDamping`.
    """

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return the end of the k recorded steps from ``z_star``."""
        z = z_star.detach()
        for step in damped_steps(f, z, self.steps, self.fixed_damping()):
            z = step
        return z


@dataclass(frozen=True)
class NeumannPhantomGradient(PhantomGradient):
    r"""Neumann-series-based phantom gradient (NPG): truncate the damped Neumann series.

    .. math::
        A^{\mathrm{neu}}_{k,\lambda} = \lambda \frac{\partial F}{\partial \theta}\Big|_{h^*}
            (I + B + \dots + B^{k-1}), \qquad
        B = \lambda \frac{\partial F}{\partial h}\Big|_{h^*} + (1 - \lambda) I

    (Geng et al., 2021, eq. "A-neumann"; the paper's listing multiplies by :math:`\lambda` twice,
    the equation once, and the equation is right). Time O(k), memory O(1): one graph of F serves
    all k products. It equals UPG at an exact equilibrium, and it is the gradient of no
    computation unless k = 1, so it has no second derivative and refuses one.

    Args:
        steps: k, at least 1.
        damping: :math:`\lambda`, in (0, 1], or an :class:`AdaptiveDamping`.
        value: what the loss is of. ``"equilibrium"``: of what the solver found, as in the paper's
            listing. ``"image"``: of :math:`F(h^*)`, which the series has been recorded at anyway.
            The two differ by the residual of the solver. Where that is large, the loss of the
            first does not depend on what F makes of its state; a run of MDEQ-Tiny diverged by it.
    """

    value: Literal["equilibrium", "image"] = "equilibrium"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value not in ("equilibrium", "image"):
            raise ValueError(f"value must be 'equilibrium' or 'image', got {self.value!r}")

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star``, or its image, attached through one application of ``f``."""
        steps, damping = self.steps, self.fixed_damping()
        return attach_by_cotangent(
            f, z_star, lambda vjp, v: neumann_series(vjp, v, steps, damping), self.value
        )


def damped_steps(f: Map, z: Tensor, steps: int, damping: float) -> Iterator[Tensor]:
    """Yield ``z <- damping f(z) + (1 - damping) z``, ``steps`` times."""
    for _ in range(steps):
        fz = f(z).to(z.dtype)
        z = fz if damping == 1.0 else torch.lerp(z, fz, damping)
        yield z


def neumann_series(vjp: Map, v: Tensor, steps: int, damping: float) -> Tensor:
    """Return ``damping * (I + B + ... + B^(steps-1)) v``, ``B u = damping J^T u + (1-damping) u``.

    By Horner's rule, ``u <- B u + v``, with ``steps - 1`` vector-Jacobian products.
    """
    u = v
    for _ in range(steps - 1):
        u = torch.lerp(u, vjp(u), damping) + v
    return damping * u
