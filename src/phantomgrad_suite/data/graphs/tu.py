"""Graph classification: any TU data set, in ten folds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from phantomgrad.checks import check_choice, check_not_negative
from phantomgrad.nn.propagation import Propagation, checked_sparse, normalized_adjacency
from phantomgrad_suite.checkpoint.loaders import ResumableLoader
from phantomgrad_suite.data.base import missing_data
from phantomgrad_suite.data.folds import authors_split, stratified_split
from phantomgrad_suite.data.graphs import Graph, GraphModule, pyg
from phantomgrad_suite.data.sources import altered_files, fingerprint
from phantomgrad_suite.runs.errors import UserError


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
    root: str  # holds <name>/raw, or <name> as the official archive has it
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
        if self.attributes not in (None, True, False):
            raise UserError(
                f"dataset.attributes must be true, false or null, got {self.attributes!r}"
            )
        check_choice("dataset.split", self.split, ("authors", "stratified"))
        if not 0 <= self.fold < self.folds:
            raise UserError(f"dataset.fold must lie in [0, {self.folds}), got {self.fold}")
        authors = self.split == "authors"
        self.evaluation_sets = ("test",) if authors else ("test", "validation")
        self._graphs, self._features = load_tu_dataset(self.name, Path(self.root), self.attributes)
        labels = torch.cat([graph.labels for graph in self._graphs])
        make = authors_split if authors else stratified_split
        self._split = make(labels, self.fold, self.folds, self.seed)
        self.in_channels = max(self._graphs[0].features.shape[1], 1)
        self.classes = int(labels.max()) + 1

    @property
    def files(self) -> list[Path]:
        return sorted(raw_folder(self.name, Path(self.root)).glob("*_*.txt"))

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "fingerprint": fingerprint(self.files),
            "features": self._features,
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


def raw_folder(name: str, root: Path) -> Path:
    """Return ``root/<name>/raw``, or ``root/<name>`` if it holds the files, as in TU's archives."""
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
    if altered := altered_files(raw, f"TUDataset/{name}/raw"):
        raise missing_data(f"{', '.join(altered)} in {raw} are missing or altered", name)
    try:
        # PyG's class would also load files next to these, which may execute code.
        data, slices, widths = pyg("io").read_tu_data(str(raw), name)
        continuous, labels = widths["num_node_attributes"], widths["num_node_labels"]
        used = continuous if attributes or (attributes is None and not labels) else 0
        if data.x is None:
            features, nodes = torch.empty(data.num_nodes, 0), data._num_nodes
        else:
            features, nodes = data.x[:, continuous - used :], slices["x"].diff().tolist()
        edges = torch.split(data.edge_index, slices["edge_index"].diff().tolist(), dim=1)
        split = (torch.split(features, nodes), edges, torch.split(data.y, 1))
        graphs = [Graph(*graph) for graph in zip(*split, strict=True)]
    except Exception as error:
        problem = f"{raw} cannot be read ({type(error).__name__}: {error})"
        raise missing_data(problem, name) from error
    targets = "real-valued targets" if real else "several targets" if data.y.dim() > 1 else ""
    if targets or not data.y.any():
        raise UserError(
            f"the graphs of {name} have {targets or 'one class only'}: only classification into "
            "two or more classes is supported"
        )
    kinds = ((used, "node attributes"), (labels, "node labels"))
    return graphs, ", ".join(f"{n} {kind}" for n, kind in kinds if n) or "node degree"
