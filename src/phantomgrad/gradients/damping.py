"""Damping that follows the model."""

from __future__ import annotations

from dataclasses import dataclass

from phantomgrad.checks import check_at_least, check_rate


@dataclass(frozen=True, kw_only=True)
class AdaptiveDamping:
    r"""The damping of a phantom gradient from the spectral radius of the map, as it is trained.

    .. math:: \lambda = \min(1, 1 / \bar\rho), \qquad
              \bar\rho \leftarrow m \bar\rho + (1 - m)\, \rho(\partial F / \partial h)

    Where :math:`\rho > 1` the Neumann series needs a :math:`\lambda` of at most about
    :math:`1 / \rho`, or a regularised Jacobian (Geng et al., 2021). It is given to an estimator in
    the place of a number; :class:`phantomgrad.DEQ` measures, keeps and saves :math:`\bar\rho`, and
    hands the estimator the :math:`\lambda` of the moment.

    Args:
        every: how many training passes of the layer lie between two measurements; the first pass
            makes the first one.
        iterations: of the power method, each a vector-Jacobian product.
        momentum: m, in [0, 1).
    """

    every: int = 100
    iterations: int = 10
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_at_least("every", self.every, 1)
        check_at_least("iterations", self.iterations, 1)
        check_rate("momentum", self.momentum)
