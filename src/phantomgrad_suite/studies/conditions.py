"""Theorem 1 and Remark 1 as instruments: when a phantom gradient must ascend, and whether it does.

(Geng et al., 2021, Section "General Condition on the Phantom Gradient".)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from phantomgrad.gradients import GradientEstimator
from phantomgrad_suite.studies.factors import Factors
from phantomgrad_suite.studies.spectra import norm, smallest_eigenvalue


@dataclass(frozen=True)
class Conditions:
    r"""Both sides of the conditions, at one state.

    Theorem 1: the phantom gradient is an ascent direction, whatever the loss, if

    .. math:: \|A (I - \partial F / \partial h) - \partial F / \partial \theta\|
              < \sigma_{\min}^2 / \sigma_{\max}

    with the extreme singular values of :math:`\partial F / \partial \theta` as it acts on
    cotangents. Remark 1, for :math:`A = (\partial F / \partial \theta) D`: it is enough that
    :math:`\|D (I - \partial F / \partial h) - I\| < 1 / \kappa^2`. Norms are spectral.

    Attributes:
        left: the left side of Theorem 1.
        reduced_left: the left side of Remark 1; ``None`` where A has no such factor D.
        sigma_min: the smallest singular value; 0 where the rank is below the size of the state.
        sigma_max: the largest one.
        margin: the least :math:`\langle A v, g \rangle / |u|^2` over all v, where
            :math:`u = (I - \partial F / \partial h)^{-1} v` and g is the exact gradient: the
            phantom gradient ascends for every loss exactly where it is positive. By the proof of
            the theorem it is at least :math:`\sigma_{\min}^2 - \sigma_{\max} \cdot` ``left``.
        shape: of :math:`\partial F / \partial \theta`, wanted entries by state entries.
    """

    left: float
    reduced_left: float | None
    sigma_min: float
    sigma_max: float
    margin: float
    shape: tuple[int, int]

    @property
    def right(self) -> float:
        """The right side of Theorem 1; zero for a map that does not see the wanted tensors."""
        return self.sigma_min**2 / self.sigma_max if self.sigma_min > 0 else 0.0

    @property
    def reduced_right(self) -> float:
        r"""The right side of Remark 1, :math:`1 / \kappa^2`."""
        return (self.sigma_min / self.sigma_max) ** 2 if self.sigma_min > 0 else 0.0

    @property
    def holds(self) -> bool:
        """Whether the condition of Theorem 1 holds."""
        return self.left < self.right

    @property
    def reduced_holds(self) -> bool | None:
        """Whether that of Remark 1 does; ``None`` where there is none."""
        return None if self.reduced_left is None else self.reduced_left < self.reduced_right

    @property
    def obstacle(self) -> str | None:
        """Why no phantom gradient can meet the condition at this state, ``None`` if one can."""
        if self.sigma_min > 0:
            return None
        wanted, state = self.shape
        if wanted < state:
            why = f"{wanted} wanted entries cannot tell {state} entries of the state apart"
        else:
            why = f"dF/dtheta has a rank below {state}, to working precision"
        return f"sigma_min is 0: {why}, so the sufficient condition cannot hold"


def conditions(factors: Factors, gradient: GradientEstimator) -> Conditions:
    """Measure both sides of the conditions for a phantom gradient.

    Args:
        factors: the matrices at the state, ``Dense`` or ``MatrixFree``.
        gradient: UPG or NPG.

    Raises:
        TypeError: ``gradient`` is no phantom gradient.
        SpectrumError: Lanczos did not converge.
    """
    rest = factors.identity - factors.by_state
    reached = factors.phantom(gradient) @ rest  # (p, d), as close to dF/dtheta as A to the exact
    inverse = factors.inverse(gradient)
    inner = reached.T @ factors.by_wanted
    return Conditions(
        left=norm(reached - factors.by_wanted),
        reduced_left=None if inverse is None else norm(inverse @ rest - factors.identity),
        sigma_min=factors.singular_range[0],
        sigma_max=factors.singular_range[1],
        margin=smallest_eigenvalue(0.5 * (inner + inner.T)),
        shape=factors.by_wanted.shape,
    )


@dataclass(frozen=True)
class Direction:
    """The phantom gradient of one loss beside the exact one.

    Attributes:
        inner: their inner product.
        cosine: of the angle between them; nan where one of them is zero.
    """

    inner: float
    cosine: float

    @property
    def ascends(self) -> bool:
        """Whether the phantom gradient is an ascent direction of the loss."""
        return self.inner > 0


def direction(factors: Factors, gradient: GradientEstimator, cotangent: Tensor) -> Direction:
    r"""Compare :math:`A v` with the exact gradient.

    .. math:: \frac{\partial F}{\partial \theta} \Big(I - \frac{\partial F}{\partial h}\Big)^{-1} v

    Args:
        factors: the matrices at the state, ``Dense`` or ``MatrixFree``.
        gradient: UPG or NPG.
        cotangent: v, the derivative of the loss by the state, shaped like the state.

    Raises:
        ValueError: the cotangent has not as many entries as the state.
        TypeError: ``gradient`` is no phantom gradient.
        SpectrumError: GMRES did not converge.
    """
    v = cotangent.detach().double().cpu().numpy().ravel()
    if v.size != factors.by_state.shape[0]:
        raise ValueError(
            f"cotangent must have {factors.by_state.shape[0]} entries like the state, got {v.size}"
        )
    phantom = factors.phantom(gradient) @ v
    exact = factors.by_wanted @ factors.solve(v)
    inner = float(phantom @ exact)
    lengths = float(np.linalg.norm(phantom) * np.linalg.norm(exact))
    return Direction(inner, inner / lengths if lengths > 0 else float("nan"))
