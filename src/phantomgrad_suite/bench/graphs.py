"""Cases: one training step of IGNN on a batch of graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from phantomgrad.gradients import ImplicitGradient, UnrolledPhantomGradient
from phantomgrad.models import GraphClassifier, Propagation, normalized_adjacency
from phantomgrad.solvers import FixedPoint
from phantomgrad_suite.bench.steps import Layer, Step, StepCase

_FEATURES, _CLASSES = 35, 2


@dataclass(frozen=True, kw_only=True)
class GraphCase(StepCase):
    """A step of IGNN for graph classification, with graphs like the molecules of COX2."""

    graphs: int = 128
    nodes: int = 42

    @property
    def samples(self) -> int:  # type: ignore[override]
        """The graphs."""
        return self.graphs

    def step(self, device: torch.device, layer: Layer) -> Step:
        """Return the step; each of the three layers solves its own equilibrium."""
        torch.manual_seed(0)
        model = GraphClassifier(_FEATURES, _CLASSES, self.solver, self.gradient, dropout=0.0)
        for implicit in model.layers:
            implicit.deq = layer(implicit.deq.cell)  # type: ignore[arg-type, union-attr]
        model.to(device)
        total = self.graphs * self.nodes
        propagation = normalized_adjacency(_rings(self.graphs, self.nodes), total).to(device)
        pooling = Propagation(_membership(self.graphs, self.nodes)).to(device)
        features = torch.randn(total, _FEATURES).to(device)
        labels = torch.randint(_CLASSES, (self.graphs,)).to(device)

        def loss() -> Tensor:
            scores = model(features, propagation, pooling, propagated=False)
            return F.nll_loss(scores, labels)

        return model, model.layers[0].deq.cell, loss  # type: ignore[union-attr, return-value]


def graph_cases(graphs: int = 128) -> list[StepCase]:
    """Return the step under implicit differentiation and under the phantom gradient."""
    solver = FixedPoint(max_evaluations=15, tol=0)
    gradients = {
        "implicit": ImplicitGradient(solver=solver),
        "UPG": UnrolledPhantomGradient(steps=5, damping=0.5),
    }
    return [
        GraphCase(
            name=f"IGNN, {graphs} graphs, {name}", solver=solver, gradient=gradient, graphs=graphs
        )
        for name, gradient in gradients.items()
    ]


def _rings(graphs: int, nodes: int) -> Tensor:
    """Return the edges, ``(2, E)``, of rings side by side, both directions of each edge."""
    node = torch.arange(graphs * nodes)
    following = torch.where(node % nodes == nodes - 1, node - nodes + 1, node + 1)
    return torch.stack([torch.cat([node, following]), torch.cat([following, node])])


def _membership(graphs: int, nodes: int) -> Tensor:
    return torch.eye(graphs).repeat_interleave(nodes, dim=1)  # (graphs, N)
