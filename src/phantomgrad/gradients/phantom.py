"""The two phantom gradients of Geng et al. (2021)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from phantomgrad.checks import check_at_least, check_choice, check_damping
from phantomgrad.gradients.base import GradientEstimator, Report, attach_by_cotangent
from phantomgrad.gradients.damping import AdaptiveDamping
from phantomgrad.solvers import Map
from phantomgrad.solvers.iterative import damped

_V = TypeVar("_V", bound=Any)


@dataclass(frozen=True)
class PhantomGradient(GradientEstimator):
    """The base of the two phantom gradients: k ``steps`` with a fixed or adaptive ``damping``."""

    steps: int
    damping: float | AdaptiveDamping | Literal["adaptive"]

    def __post_init__(self) -> None:
        check_at_least("steps", self.steps, 1)
        if self.damping == "adaptive":  # so that a command line can replace the number by a word
            object.__setattr__(self, "damping", AdaptiveDamping())
        elif isinstance(self.damping, str):
            raise ValueError(f'damping must lie in (0, 1] or be "adaptive", got {self.damping!r}')
        elif not isinstance(self.damping, AdaptiveDamping):
            check_damping(self.damping)

    @property
    def current_damping(self) -> float:
        r""":math:`\lambda` as a number."""
        if isinstance(self.damping, AdaptiveDamping):
            return self.damping.value
        return float(self.damping)

    @property
    def state(self) -> nn.Module | None:
        """The adaptive damping, if there is one."""
        return self.damping if isinstance(self.damping, AdaptiveDamping) else None

    def observe(self, f: Map, z_star: Tensor) -> None:
        """Let an adaptive damping measure the map."""
        if isinstance(self.damping, AdaptiveDamping):
            self.damping.observe(f, z_star)


@dataclass(frozen=True)
class UnrolledPhantomGradient(PhantomGradient):
    r"""Unrolling-based phantom gradient (UPG): backpropagate through k damped steps.

    From :math:`h_0 = h^*`, :math:`h_{t+1} = \lambda F(h_t) + (1 - \lambda) h_t` is recorded for
    :math:`t < k`, which gives (Geng et al., 2021, eq. "A-unroll")

    .. math::
        A^{\mathrm{unr}}_{k,\lambda} = \lambda \sum_{t=0}^{k-1}
            \frac{\partial F}{\partial \theta}\Big|_{h_t} \prod_{s=t+1}^{k-1}
            \Big(\lambda \frac{\partial F}{\partial h}\Big|_{h_s} + (1 - \lambda) I\Big).

    The value is :math:`h_k`. Where the damped map contracts, it equals :math:`h^*` up to the
    residual of the solver; where it does not, the k steps amplify that residual. It is the true
    gradient of these k steps, so second derivatives work. Time and memory are O(k).
    ``steps=1, damping=1`` is the one-step gradient (JFB).

    Args:
        steps: k, at least 1.
        damping: :math:`\lambda` in (0, 1]; 1 means no damping. Or an :class:`AdaptiveDamping`, or
            ``"adaptive"``, short for ``AdaptiveDamping()``.
    """

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return the last of k recorded steps from ``z_star``."""
        z = z_star.detach()
        for step in damped_steps(f, z, self.steps, self.current_damping):
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
    all k products. At an exact equilibrium it equals UPG. Second derivatives are refused, since for
    k > 1 it is not the gradient of any computation.

    Args:
        steps, damping: as in :class:`UnrolledPhantomGradient`.
        value: what the layer returns: ``"equilibrium"``, the result of the solver, as in the
            paper's listing, or ``"image"``, :math:`F(h^*)`, which also trains where solves end
            early.
    """

    value: Literal["equilibrium", "image"] = "equilibrium"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("value", self.value, ("equilibrium", "image"))

    def attach(self, f: Map, z_star: Tensor, report: Report | None = None) -> Tensor:
        """Return ``z_star``, or ``f(z_star)``, attached through one evaluation of ``f``."""
        series = partial(neumann_series, steps=self.steps, damping=self.current_damping)
        return attach_by_cotangent(f, z_star, series, self.value)


def damped_steps(f: Map, z: Tensor, steps: int, damping: float) -> Iterator[Tensor]:
    """Yield ``z <- damping f(z) + (1 - damping) z``, ``steps`` times."""
    for _ in range(steps):
        z = damped(z, f(z).to(z.dtype), damping)
        yield z


def neumann_series(vjp: Map, v: Tensor, steps: int, damping: float) -> Tensor:
    """Return ``damping (I + B + ... + B^(steps-1)) v``, in ``steps - 1`` products with ``J``.

    ``B u = damping J^T u + (1 - damping) u``.
    """
    sums = neumann_sums(lambda u: torch.lerp(u, vjp(u), damping), v)
    return damping * next(islice(sums, steps - 1, None))


def neumann_sums(b: Callable[[_V], _V], v: _V) -> Iterator[_V]:
    """Yield ``(I + B + ... + B^(k-1)) v`` for k = 1, 2, ..., by Horner's rule, ``u <- B u + v``."""
    u = v
    while True:
        yield u
        u = b(u) + v
