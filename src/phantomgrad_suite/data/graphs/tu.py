"""Graph classification: any TU data set, in ten folds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from phantomgrad.checks import check_choice, check_not_negative
from phantomgrad.graphs import Propagation, checked_sparse, normalized_adjacency
from phantomgrad_suite.checkpoint.loaders import ResumableLoader
from phantomgrad_suite.data.base import missing_data
from phantomgrad_suite.data.folds import Split, authors_split, stratified_split
from phantomgrad_suite.data.graphs import Graph, GraphModule, pyg
from phantomgrad_suite.data.sources import embedded_folder, fingerprint
from phantomgrad_suite.runs.errors import UserError

EMBEDDED = ("COX2", "PROTEINS")


class GraphBatch(NamedTuple):
    """Several graphs as one block-diagonal graph; made once, used in every epoch."""

    features: Tensor  # node features times the adjacency, P U, (N, F)
    propagation: Propagation  # the normalised block-diagonal adjacency P, (N, N)
    pooling: Propagation  # sums the nodes of each graph, (graphs, N)
    labels: Tensor  # classes, (graphs,)


@dataclass(kw_only=True, eq=False)
class GraphFolds(GraphModule):
    """One fold of a TU data set.

    ``attributes`` says whether continuous node attributes are features, in addition to the node
    labels that follow them; ``None`` uses them only if there are no node labels. The feature of
    nodes with neither is their degree.
    """

    name: str  # as PyG knows it: COX2, PROTEINS, MUTAG, ...
    root: str  # holds <name>/raw, or <name> as in the official archive; not needed if embedded
    fold: int = 0  # the one that is the test part
    folds: int = 10
    seed: int = 42
    batch_size: int = 128
    split: Literal["authors", "stratified"] = "authors"  # only the latter has a validation part
    test_edge_weight: float = 2.0  # of edges relative to self loops, as the authors evaluate
    attributes: bool | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.check_settings(1, "batch_size")
        self.check_settings(2, "folds")
        self.check_settings(0, "seed")
        check_not_negative("dataset.test_edge_weight", self.test_edge_weight)
        check_choice("dataset.split", self.split, ("authors", "stratified"))
        if not 0 <= self.fold < self.folds:
            raise UserError(f"dataset.fold must lie in [0, {self.folds}), got {self.fold}")
        authors = self.split == "authors"
        self.evaluation_sets = ("test",) if authors else ("test", "validation")
        self.graphs, self._features = load_tu_dataset(self.name, Path(self.root), self.attributes)
        raw = raw_folder(self.name, Path(self.root))
        self._fingerprint = fingerprint(sorted(raw.glob("*_*.txt")))
        self._labels = torch.cat([graph.labels for graph in self.graphs])
        self._split = self.split_of(self.fold)
        self.in_channels = max(self.graphs[0].features.shape[1], 1)
        self.classes = int(self._labels.max()) + 1

    def split_of(self, fold: int) -> Split:
        """Return the indices of the parts in a fold."""
        make = authors_split if self.split == "authors" else stratified_split
        return make(self._labels, fold, self.folds, self.seed)

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "fingerprint": self._fingerprint,
            "features": self._features,
            "graphs": len(self.graphs),
            **{name: len(part) for name, part in self._split._asdict().items()},
        }

    def setup(self, stage: str | None = None) -> None:
        self._batches = {
            name: [
                collate(
                    [self.graphs[i] for i in chunk.tolist()],
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


def raw_folder(name: str, root: Path) -> Path:
    """Return ``root/<name>/raw``, or ``root/<name>`` if it holds the files, as in TU's archives.

    COX2 and PROTEINS are those that come with the package.
    """
    if name in EMBEDDED:
        return embedded_folder(name) / name / "raw"
    flat = root / name
    return flat if (flat / f"{name}_A.txt").exists() else flat / "raw"


def load_tu_dataset(
    name: str, root: Path, attributes: bool | None = None
) -> tuple[list[Graph], str]:
    """Read a TU data set; return its graphs, and what their features are.

    ``attributes`` is that of :class:`GraphFolds`.
    """
    raw = raw_folder(name, root)
    real = (raw / f"{name}_graph_attributes.txt").exists()
    parts = ("A", "graph_indicator", "graph_attributes" if real else "graph_labels")
    files = [f"{name}_{part}.txt" for part in parts]
    if missing := [file for file in files if not (raw / file).exists()]:
        lacks = f"lacks {', '.join(missing)} in {raw}" if missing != files else f"is not in {root}"
        raise missing_data(f"{name} {lacks}", name)
    if real:
        raise _other_task(name, "real-valued targets")
    try:
        return _read_graphs(raw, name, attributes)
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        problem = f"{raw} cannot be read ({type(error).__name__}: {error})"
        raise missing_data(problem, name) from error


def _other_task(name: str, targets: str) -> UserError:
    return UserError(
        f"the graphs of {name} have {targets}: only classification into two or more classes is "
        "supported"
    )


def _read_graphs(raw: Path, name: str, attributes: bool | None) -> tuple[list[Graph], str]:
    """Return graphs and what their features are, read by PyG.

    Not by its data set class, which would also load files next to these that may execute code.
    """
    data, slices, columns = pyg("io").read_tu_data(str(raw), name)
    if data.y.dim() > 1:
        raise _other_task(name, "several targets")
    if not data.y.any():
        raise _other_task(name, "one class only")
    owners = np.loadtxt(raw / f"{name}_graph_indicator.txt", np.int64)
    nodes = np.bincount(owners - 1).tolist()
    features = torch.empty(len(owners), 0) if data.x is None else data.x
    kinds = {kind: columns[f"num_node_{kind}"] for kind in ("attributes", "labels")}
    if not (attributes or (attributes is None and not kinds["labels"])):
        features = features[:, kinds["attributes"] :]
        kinds["attributes"] = 0
    split = (
        torch.split(features.to(torch.get_default_dtype()), nodes),
        torch.split(data.edge_index, slices["edge_index"].diff().tolist(), dim=1),
        torch.split(data.y, 1),
    )
    described = ", ".join(f"{count} node {kind}" for kind, count in kinds.items() if count)
    return [Graph(*graph) for graph in zip(*split, strict=True)], described or "node degree"
