"""Classification of graphs, and of the nodes of one graph."""

from __future__ import annotations

from torch import Tensor

from phantomgrad_suite.data.graphs.chains import NodeBatch
from phantomgrad_suite.data.graphs.tu import GraphBatch
from phantomgrad_suite.tasks.classification import Classification


class GraphClassification(Classification):
    """One label for each graph of a batch."""

    def scored(self, batch: GraphBatch, part: str) -> tuple[Tensor, Tensor]:
        """Score every graph."""
        scores = self.model(batch.features, batch.propagation, batch.pooling, propagated=True)
        return scores, batch.labels


class NodeClassification(Classification):
    """One label for each node of one graph; a mask for each part."""

    def scored(self, batch: NodeBatch, part: str) -> tuple[Tensor, Tensor]:
        """Score the nodes of ``part``."""
        mask = batch.masks[part]
        return self.model(batch.features, batch.propagation)[mask], batch.labels[mask]
