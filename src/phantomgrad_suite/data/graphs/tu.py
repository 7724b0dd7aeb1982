"""Graph classification: any TU data set through PyG's loader, in ten folds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from phantomgrad.models import Propagation, normalized_adjacency
from phantomgrad.nn.propagation import checked_sparse
from phantomgrad_suite.data.base import LabelledData, fixed_batches
from phantomgrad_suite.data.folds import authors_split, stratified_split
from phantomgrad_suite.data.graphs.tu_files import fingerprint, load_tu_dataset
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True)
class GraphBatch:
    """Some graphs side by side, ready for the model; made once, used every epoch.

    Attributes:
        features: node features times the adjacency, P U, ``(N, F)``.
        propagation: the normalised block-diagonal adjacency P, ``(N, N)``.
        pooling: sums the nodes of each graph, ``(graphs, N)``.
        labels: classes, ``(graphs,)``.
    """

    features: Tensor
    propagation: Propagation
    pooling: Propagation
    labels: Tensor

    def to(self, *args: Any, **kwargs: Any) -> GraphBatch:
        """Return a copy on another device (Lightning moves batches by this)."""
        return GraphBatch(
            self.features.to(*args, **kwargs),
            self.propagation.to(*args, **kwargs),
            self.pooling.to(*args, **kwargs),
            self.labels.to(*args, **kwargs),
        )


class GraphFolds(LabelledData):
    """One fold of a TU data set.

    Args:
        name: of the data set, as PyG knows it (COX2, PROTEINS, MUTAG, ...).
        root: the folder that holds ``<name>/raw``.
        fold: which fold is tested, from 0.
        folds: number of folds.
        seed: of the order and the folds.
        batch_size: graphs in a batch; batches are the same in every epoch.
        split: ``"authors"`` (IGNN's folds, no validation part) or ``"stratified"`` (with one).
        test_edge_weight: weight of the edges against the self loops in evaluation; the official
            script evaluates with 2 what it trains with 1.
    """

    def __init__(
        self,
        *,
        name: str,
        root: str,
        fold: int = 0,
        folds: int = 10,
        seed: int = 42,
        batch_size: int = 128,
        split: Literal["authors", "stratified"] = "authors",
        test_edge_weight: float = 2.0,
    ) -> None:
        super().__init__()
        if split not in ("authors", "stratified"):
            raise UserError(f"dataset.split must be 'authors' or 'stratified', got {split!r}")
        if not 0 <= fold < folds:
            raise UserError(f"dataset.fold must lie in [0, {folds}), got {fold}")
        self.evaluation_sets = ("test",) if split == "authors" else ("test", "validation")
        self._name, self._root, self._fold = name, Path(root), fold
        self._batch_size, self._test_edge_weight = batch_size, test_edge_weight
        self._graphs = load_tu_dataset(name, self._root)
        labels = self._graphs.y
        self._classes = int(labels.max()) + 1
        make = authors_split if split == "authors" else stratified_split
        self._split = make(labels, fold, folds, seed)

    @property
    def in_channels(self) -> int:
        """Width of the node features (1, the degree, where a data set has none)."""
        return max(int(self._graphs.num_node_features), 1)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self._classes

    def facts(self) -> dict[str, Any]:
        """Return name, fingerprint and sizes."""
        return {
            "name": self._name,
            "fingerprint": fingerprint(self._root / self._name / "raw"),
            "graphs": len(self._graphs),
            "train": len(self._split.train),
            "validation": len(self._split.validation),
            "test": len(self._split.test),
        }

    def setup(self, stage: str | None = None) -> None:
        """Prepare the batches of every part."""
        self._train = self._batches(self._split.train, 1.0)
        self._evaluation = {
            "test": self._batches(self._split.test, self._test_edge_weight),
            "validation": self._batches(self._split.validation, self._test_edge_weight),
        }

    def train_dataloader(self) -> DataLoader[GraphBatch]:
        """Return the training batches."""
        return fixed_batches(self._train)

    def val_dataloader(self) -> list[DataLoader[GraphBatch]]:
        """Return the batches of each evaluation set."""
        return [fixed_batches(self._evaluation[name]) for name in self.evaluation_sets]

    def _batches(self, indices: Tensor, edge_weight: float) -> list[GraphBatch]:
        return [
            collate([self._graphs[int(i)] for i in chunk], edge_weight)
            for chunk in torch.split(indices, self._batch_size)
            if len(chunk)
        ]


def collate(graphs: list[Any], edge_weight: float) -> GraphBatch:
    """Join PyG graphs to one :class:`GraphBatch`."""
    from torch_geometric.data import Batch
    from torch_geometric.utils import degree

    batch = Batch.from_data_list(graphs)
    nodes, count = batch.num_nodes, batch.num_graphs
    propagation = normalized_adjacency(batch.edge_index, nodes, edge_weight=edge_weight)
    members = torch.stack([batch.batch, torch.arange(nodes)])
    pooling = checked_sparse(members, torch.ones(nodes), (count, nodes))
    has_features = batch.x is not None and batch.x.shape[1] > 0
    features = batch.x if has_features else degree(batch.edge_index[1], nodes).unsqueeze(1)
    return GraphBatch(propagation(features), propagation, Propagation(pooling), batch.y)
