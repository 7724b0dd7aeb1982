"""IGNN for nodes with several labels at once, in many graphs (PPI)."""

import itertools
import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.ignn import ImplicitGraphLayer
from phantomgrad.nn.propagation import Propagation
from phantomgrad.solvers import Solver


class MultilabelNodeClassifier(nn.Module):
    r"""IGNN for PPI: implicit layers, each with a parallel linear one (Gu et al., 2020).

    .. math:: U_{i+1} = \mathrm{ELU}(X_i + U_i V_i^\top + c_i), \qquad
              X_i = \mathrm{ReLU}(A X_i W_i^\top + A U_i \Omega_i^\top)

    with no ELU in the last stage. A is the plain adjacency matrix, so the rows of W_i are bounded
    by :math:`\kappa / \rho` with one fixed :math:`\rho`, the largest spectral radius of a training
    graph. The official code uses the radius of the current graph instead and writes the projected
    W back, in evaluation too, so that test graphs influence training. Here they do not, but a
    graph with a larger radius than all training graphs need not have an equilibrium.

    Args:
        in_channels: width of the node features (50 for PPI).
        labels: number of labels (121).
        spectral_radius: :math:`\rho`, positive.
        solver: finds the equilibria.
        gradient: differentiates them.
        channels: widths of the stages before the last, whose width is ``labels``.
        kappa: see :class:`ImplicitGraphLayer`.
    """

    def __init__(
        self,
        in_channels: int,
        labels: int,
        spectral_radius: float,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        channels: Sequence[int] = (1024, 512, 512, 256),
        kappa: float = 0.98,
    ) -> None:
        super().__init__()
        if not 0 < spectral_radius < math.inf:
            raise ValueError(f"spectral_radius must be a positive number, got {spectral_radius}")
        self.spectral_radius = spectral_radius
        widths = list(itertools.pairwise([in_channels, *channels, labels]))
        self.layers = nn.ModuleList(
            ImplicitGraphLayer(p, m, solver, gradient, kappa) for p, m in widths
        )
        self.linears = nn.ModuleList(nn.Linear(p, m) for p, m in widths)
        self.project_()

    def forward(self, features: Tensor, propagation: Propagation) -> Tensor:
        """Return logits, ``(N, labels)``, of node features ``(N, F)`` in a graph ``(N, N)``."""
        x = features
        for layer, linear in zip(self.layers, self.linears, strict=True):
            x = layer(x, propagation) + linear(x)  # (N, m)
            x = x if linear is self.linears[-1] else F.elu(x)
        return x

    def project_(self) -> None:
        """Make every layer well-posed again on the training graphs, after an optimizer step."""
        for layer in self.layers:
            layer.project_(self.spectral_radius)  # type: ignore[operator]
