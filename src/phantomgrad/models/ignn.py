"""IGNN, the implicit graph neural network (Gu et al., 2020), as the paper trains it.

Features are node-major, ``(N, channels)``; the graphs of a batch form one, block-diagonal graph.
"""

import itertools
import math
import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.checks import check_rate
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.graphs import Propagation, adjacency, node_sums, normalized_adjacency
from phantomgrad.solvers import Solver


class IGNNCell(nn.Module):
    r"""The map :math:`X \mapsto \mathrm{ReLU}(P X W^\top + B)`, well-posed for small W."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, channels))

    def forward(self, z: Tensor, injection: Tensor, propagation: Propagation) -> Tensor:
        """Return the next state, ``(N, m)``, from ``z`` and the injection B, ``(N, m)``."""
        return torch.addmm(injection, propagation(z), self.weight.t()).relu_()


class ImplicitGraphLayer(nn.Module):
    r"""The equilibrium :math:`X = \mathrm{ReLU}(P X W^\top + B)`, :math:`B = P U \Omega^\top`.

    It is well-posed if :math:`\|W\|_\infty \le \kappa / \rho(P)`, which :meth:`project_` restores
    after an optimizer step; the gradient does not include the projection. A training pass warns if
    it was forgotten. All nodes are one sample of the solver: they converge, or fail, together. A
    feature that is NaN makes all of them NaN.

    As in the official code, the layer owns (and the paper counts) a second input weight and a bias
    that do not enter the equation; they are not trained (``requires_grad`` is off).

    Args:
        in_channels: p, the width of the input U.
        channels: m, the width of the equilibrium.
        solver, gradient: of the :class:`phantomgrad.DEQ`.
        kappa: the bound on the rows of W times the spectral radius of P, in (0, 1).
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        solver: Solver,
        gradient: GradientEstimator,
        kappa: float = 0.9,
    ) -> None:
        super().__init__()
        if not 0 < kappa < 1:
            raise ValueError(f"kappa must lie in (0, 1), got {kappa}")
        self.kappa = self.bound = kappa
        """``bound`` is the radius of the last projection of the rows of W."""
        self.deq = DEQ(IGNNCell(channels), solver, gradient, coupled=True)
        self.omega = nn.Parameter(torch.empty(channels, in_channels))
        self.unused_omega = nn.Parameter(torch.empty(channels, in_channels), requires_grad=False)
        self.unused_bias = nn.Parameter(torch.empty(channels, 1), requires_grad=False)
        bound = 1 / math.sqrt(channels)
        for parameter in (self.weight, self.omega, self.unused_omega, self.unused_bias):
            nn.init.uniform_(parameter, -bound, bound)
        self.project_()

    @property
    def weight(self) -> nn.Parameter:
        """W, ``(m, m)``."""
        return self.deq.cell.weight  # type: ignore[return-value]

    def forward(
        self,
        u: Tensor,
        propagation: Propagation | Tensor,
        edge_weight: Tensor | float = 1.0,
        *,
        propagated: bool = False,
        warm: bool = True,
    ) -> Tensor:
        """Return the equilibrium, ``(N, m)``, for node features ``u``, ``(N, p)``.

        Args:
            u: node features U or, with ``propagated``, their product P U.
            propagation: P, ``(N, N)``, or the ``edges`` ``(2, E)`` of its
                :func:`phantomgrad.models.normalized_adjacency`, with ``edge_weight``.
            warm: start the solver from B, as in graph classification, instead of zero.
        """
        if isinstance(propagation, Tensor):
            propagation = normalized_adjacency(
                propagation, len(u), edge_weight=edge_weight, dtype=u.dtype
            )
        elif isinstance(edge_weight, Tensor) or edge_weight != 1.0:
            raise ValueError("edge_weight is for edges (2, E): a Propagation has its weights in it")
        changed = self.training and self.weight._version != self._projected
        if changed and (self.weight.detach().abs().sum(1) > 1.01 * self.bound).any():
            warnings.warn(
                "a row of the weight has left the ball in which the layer is well-posed: call "
                "project_() after each optimizer step",
                stacklevel=2,
            )
        hidden = F.linear(u, self.omega)  # (N, m)
        injection = hidden if propagated else propagation(hidden)
        z0 = injection.detach() if warm else torch.zeros_like(injection)
        z, _ = self.deq(injection, propagation, z0=z0)
        return z  # type: ignore[no-any-return]

    @torch.no_grad()
    def project_(self, spectral_radius: float = 1.0) -> None:
        """Project W in place, so that the layer is well-posed for that ``rho(P)``."""
        self.bound = self.kappa / spectral_radius
        self.weight.copy_(project_rows_onto_l1_ball(self.weight, self.bound))
        self._projected = self.weight._version


def project_rows_onto_l1_ball(w: Tensor, radius: float) -> Tensor:
    r"""Return the Euclidean projection of each row onto :math:`\{w : \|w\|_1 \le r\}`.

    Rows inside the ball are kept. Others become :math:`\mathrm{sign}(w) \max(|w| - t, 0)`, with
    the threshold t that makes their norm r, found by sorting (Duchi et al., 2008).
    """
    if not radius > 0:
        raise ValueError(f"radius must be positive, got {radius}")
    size = w.abs()
    ordered = size.sort(dim=1, descending=True).values
    excess = ordered.cumsum(dim=1) - radius
    count = torch.arange(1, w.shape[1] + 1, dtype=w.dtype, device=w.device)
    support = (ordered * count > excess).sum(dim=1, keepdim=True).clamp_min(1)
    threshold = (excess.gather(1, support - 1) / support).clamp_min(0)
    projected = w.sign() * (size - threshold).clamp_min(0)
    return torch.where(size.sum(dim=1, keepdim=True) > radius, projected, w)


class _Classifier(nn.Module):
    spectral_radius = 1.0  # of P, if it is normalised

    def project_(self) -> None:
        """Make every implicit layer well-posed again, after an optimizer step."""
        for module in self.modules():
            if isinstance(module, ImplicitGraphLayer):
                module.project_(self.spectral_radius)


class GraphClassifier(_Classifier):
    """IGNN for graphs: implicit layers, sum pooling over the nodes, two linear layers.

    Args:
        in_channels: width of the node features (35 for COX2, 3 for PROTEINS).
        classes: number of classes.
        solver, gradient, kappa: of each :class:`ImplicitGraphLayer`.
        channels: width of every hidden layer.
        layers: number of implicit layers.
        dropout: rate before the last linear layer, the only dropout of the model.
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        channels: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        kappa: float = 0.9,
    ) -> None:
        super().__init__()
        check_rate("dropout", dropout)
        widths = [in_channels, *[channels] * layers]
        self.layers = nn.ModuleList(
            ImplicitGraphLayer(p, m, solver, gradient, kappa) for p, m in itertools.pairwise(widths)
        )
        self.hidden = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(channels, classes)

    def forward(
        self,
        features: Tensor,
        propagation: Propagation | Tensor,
        pooling: Propagation | Tensor,
        *,
        propagated: bool = False,
    ) -> Tensor:
        """Return log-probabilities, ``(graphs, classes)``.

        Args:
            features, propagation, propagated: as in :meth:`ImplicitGraphLayer.forward`.
            pooling: the 0/1 matrix that sums the nodes of each graph, ``(graphs, N)``, or the graph
                of each node, ``(N,)``, the ``batch`` of PyTorch Geometric.
        """
        if isinstance(propagation, Tensor):
            propagation = normalized_adjacency(propagation, len(features), dtype=features.dtype)
        if isinstance(pooling, Tensor):
            pooling = node_sums(pooling, dtype=features.dtype)
        x = features
        for i, layer in enumerate(self.layers):
            x = layer(x, propagation, propagated=propagated and i == 0)  # (N, m)
        x = pooling(x)  # (graphs, m)
        x = self.dropout(F.relu(self.hidden(x)))
        return F.log_softmax(self.output(x), dim=1)


class NodeClassifier(_Classifier):
    """IGNN for the nodes of the Chains graphs.

    One implicit layer, solved from zero, its rows scaled to unit length, dropout, a linear layer.

    Args:
        in_channels: width of the node features.
        classes: number of classes.
        solver, gradient, kappa: of the :class:`ImplicitGraphLayer`.
        channels: width of the implicit layer.
        dropout: rate before the linear layer.
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        channels: int = 16,
        dropout: float = 0.5,
        kappa: float = 0.9,
    ) -> None:
        super().__init__()
        check_rate("dropout", dropout)
        self.layer = ImplicitGraphLayer(in_channels, channels, solver, gradient, kappa)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(channels, classes, bias=False)

    def forward(self, features: Tensor, propagation: Propagation | Tensor) -> Tensor:
        """Return log-probabilities, ``(N, classes)``, of node features ``(N, F)``."""
        x = self.layer(features, propagation, warm=False)  # (N, m)
        x = F.normalize(x, dim=1)
        return F.log_softmax(self.output(self.dropout(x)), dim=1)


class MultilabelNodeClassifier(_Classifier):
    r"""IGNN for PPI: implicit layers, each with a parallel linear one (Gu et al., 2020).

    .. math:: U_{i+1} = \mathrm{ELU}(X_i + U_i V_i^\top + c_i), \qquad
              X_i = \mathrm{ReLU}(A X_i W_i^\top + A U_i \Omega_i^\top)

    with no ELU in the last stage. A is the plain adjacency matrix, so the rows of W_i are bounded
    by :math:`\kappa / \rho` with one fixed :math:`\rho`, the largest spectral radius of a training
    graph; a graph with a larger one need not have an equilibrium. The official code uses the radius
    of the current graph and writes the projected W back, so that test graphs influence training.

    Args:
        in_channels: width of the node features (50 for PPI).
        labels: number of labels (121), the width of the last stage.
        spectral_radius: :math:`\rho`, positive.
        channels: widths of the stages before the last.
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

    def forward(self, features: Tensor, propagation: Propagation | Tensor) -> Tensor:
        """Return logits, ``(N, labels)``, of features ``(N, F)``; A may be edges ``(2, E)``."""
        if isinstance(propagation, Tensor):
            propagation = adjacency(propagation, len(features), dtype=features.dtype)
        x = features
        for layer, parallel in zip(self.layers, self.linears, strict=True):
            x = layer(x, propagation) + parallel(x)  # (N, m)
            x = x if parallel is self.linears[-1] else F.elu(x)
        return x
