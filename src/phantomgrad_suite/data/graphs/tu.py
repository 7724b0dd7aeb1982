"""Graph classification: any TU data set, in ten folds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from phantomgrad.checks import check_choice
from phantomgrad.nn.propagation import Propagation, checked_sparse, normalized_adjacency
from phantomgrad_suite.data.base import DataModule, damaged_data, missing_data
from phantomgrad_suite.data.folds import authors_split, stratified_split
from phantomgrad_suite.data.graphs import Graph, GraphData, pyg
from phantomgrad_suite.data.loaders import ResumableLoader
from phantomgrad_suite.data.sources import fingerprint
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True)
class GraphBatch(GraphData):
    """Several graphs as one block-diagonal graph; made once, used in every epoch."""

    features: Tensor  # node features times the adjacency, P U, (N, F)
    propagation: Propagation  # the normalised block-diagonal adjacency P, (N, N)
    pooling: Propagation  # sums the nodes of each graph, (graphs, N)
    labels: Tensor  # classes, (graphs,)


@dataclass(kw_only=True, eq=False)
class GraphFolds(DataModule):
    """One fold of a TU data set.

    Args:
        name: of the data set, as PyG knows it (COX2, PROTEINS, MUTAG, ...).
        root: the folder that holds ``<name>/raw``.
        fold: index of the fold that is the test part, out of ``folds``.
        split: ``"authors"`` (IGNN's folds, no validation part) or ``"stratified"`` (with one).
        test_edge_weight: weight of the edges relative to the self loops in evaluation; the
            official script trains with 1 but evaluates with 2.
    """

    name: str
    root: str
    fold: int = 0
    folds: int = 10
    seed: int = 42
    batch_size: int = 128
    split: Literal["authors", "stratified"] = "authors"
    test_edge_weight: float = 2.0

    def __post_init__(self) -> None:
        super().__init__()
        check_choice("dataset.split", self.split, ("authors", "stratified"))
        if not 0 <= self.fold < self.folds:
            raise UserError(f"dataset.fold must lie in [0, {self.folds}), got {self.fold}")
        authors = self.split == "authors"
        self.evaluation_sets = ("test",) if authors else ("test", "validation")
        self._graphs = load_tu_dataset(self.name, Path(self.root))
        labels = torch.cat([graph.labels for graph in self._graphs])
        make = authors_split if authors else stratified_split
        self._split = make(labels, self.fold, self.folds, self.seed)
        self.in_channels = max(self._graphs[0].features.shape[1], 1)
        self.classes = int(labels.max()) + 1

    def facts(self) -> dict[str, Any]:
        raw = Path(self.root, self.name, "raw")
        return {
            "name": self.name,
            "fingerprint": fingerprint(sorted(raw.glob("*_*.txt"))),
            "graphs": len(self._graphs),
            **{name: len(part) for name, part in self._split._asdict().items()},
        }

    def setup(self, stage: str | None = None) -> None:
        self._batches = {
            name: [
                collate(
                    [self._graphs[i] for i in chunk.tolist()],
                    1.0 if name == "train" else self.test_edge_weight,
                )
                for chunk in part.split(self.batch_size)
                if len(chunk)
            ]
            for name, part in self._split._asdict().items()
        }

    def loader(self, part: str) -> Any:
        return ResumableLoader(self._batches[part], batch_size=None)


def collate(graphs: list[Graph], edge_weight: float) -> GraphBatch:
    """Join graphs to one batch; the degrees of the nodes stand in for missing features."""
    sizes = torch.tensor([len(graph.features) for graph in graphs])
    firsts, nodes = sizes.cumsum(0) - sizes, int(sizes.sum())
    edges = torch.cat([g.edges + first for g, first in zip(graphs, firsts, strict=True)], dim=1)
    features = torch.cat([graph.features for graph in graphs])
    if not features.shape[1]:
        features = edges[1].bincount(minlength=nodes).to(torch.get_default_dtype()).unsqueeze(1)
    propagation = normalized_adjacency(edges, nodes, edge_weight=edge_weight)
    members = torch.stack([torch.arange(len(graphs)).repeat_interleave(sizes), torch.arange(nodes)])
    pooling = checked_sparse(members, torch.ones(nodes), (len(graphs), nodes))
    labels = torch.cat([graph.labels for graph in graphs])
    return GraphBatch(propagation(features), propagation, Propagation(pooling), labels)


def load_tu_dataset(name: str, root: Path) -> list[Graph]:
    """Read a TU data set from ``root/<name>/raw``; continuous node attributes are left out."""
    raw = root / name / "raw"
    if not all((raw / f"{name}_{part}.txt").exists() for part in ("A", "graph_indicator")):
        raise missing_data(f"{name} is not in {root}", name)
    try:
        data, slices, widths = pyg("io").read_tu_data(str(raw), name)
        if data.x is None:
            features, nodes = torch.empty(data.num_nodes, 0), data._num_nodes
        else:
            features = data.x[:, widths["num_node_attributes"] :]
            nodes = slices["x"].diff().tolist()
        parts = (
            torch.split(features, nodes),
            torch.split(data.edge_index, slices["edge_index"].diff().tolist(), dim=1),
            torch.split(data.y, 1),
        )
        return [Graph(*graph) for graph in zip(*parts, strict=True)]
    except Exception as error:
        problem = f"{raw} cannot be read ({type(error).__name__}: {error})"
        raise damaged_data(problem, name) from error
