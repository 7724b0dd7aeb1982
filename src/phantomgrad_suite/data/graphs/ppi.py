"""PPI, 24 graphs of proteins with many labels each, and synthetic graphs of its shapes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.linalg import eigs
from torch import Tensor

from phantomgrad.checks import check_choice
from phantomgrad.graphs import Propagation, adjacency
from phantomgrad_suite.checkpoint.loaders import ResumableLoader, Shuffled
from phantomgrad_suite.data.base import missing_data
from phantomgrad_suite.data.graphs import Graph, GraphModule
from phantomgrad_suite.data.sources import fingerprint
from phantomgrad_suite.runs.errors import UserError

FEATURES, LABELS = 50, 121
SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # how files name the parts
FILES = tuple(
    f"{split}_{kind}"
    for split in SPLITS.values()
    for kind in ("feats.npy", "labels.npy", "graph_id.npy", "graph.json")
)
NODES: dict[str, tuple[int, ...]] = {  # of every graph
    "train": (
        *(1767, 1377, 2263, 2339, 1578, 1021, 1823, 2488, 591, 3312),
        *(2401, 1878, 1819, 3480, 2794, 2326, 2650, 2815, 3163, 3021),
    ),
    "validation": (3230, 3284),
    "test": (3224, 2300),
}
_LEAST = 12  # nodes of a scaled graph
_DEGREE = 27.3  # mean number of neighbours in PPI
_TAIL = 2.5  # exponent of the weights by which the ends of an edge are drawn
_INDICATORS = 0.9  # mean number of features of a node of PPI
_CONSTANT = 10  # the empty feature column of PPI
_RANK = 8  # of the scores of the labels, which are correlated
_LABELLED = 0.3  # mean share of the nodes that have a label: an assumption
_SYNTHETIC = "ppi-synthetic"
_DENSE = 200  # nodes up to which all eigenvalues cost less than the largest alone


def scaled(scale: float) -> dict[str, tuple[int, ...]]:
    """Return the nodes of graphs that are ``scale`` times as large as those of PPI."""
    return {
        part: tuple(max(round(scale * count), _LEAST) for count in counts)
        for part, counts in NODES.items()
    }


def write_ppi(raw: Path, scale: float = 1.0, seed: int = 0) -> None:
    r"""Write the twelve files of PPI with synthetic content.

    Graphs have the node counts of PPI, times ``scale``, and its mean degree with heavy tails.
    Features U are sparse indicators, standardised. A label is given to the nodes with the largest
    entries of a column of :math:`U M + A U N`, where M and N are random of rank 8.
    """
    rng = np.random.default_rng(seed)
    raw.mkdir(parents=True, exist_ok=True)
    sizes = scaled(scale)
    links = {part: _links(counts, rng) for part, counts in sizes.items()}
    rates = rng.dirichlet(np.ones(FEATURES - 1)) * _INDICATORS
    rates = np.insert(rates.clip(0.005, 0.5), _CONSTANT, 0)
    indicators = {part: rng.random((sum(n), FEATURES)) < rates for part, n in sizes.items()}
    mean, deviation = indicators["train"].mean(axis=0), indicators["train"].std(axis=0)
    deviation[deviation == 0] = 1
    features = {part: (u - mean) / deviation for part, u in indicators.items()}
    labels = _labels(features, links, rng)
    first = 1
    for part, split in SPLITS.items():
        graph_id = np.repeat(np.arange(first, first + len(sizes[part])), sizes[part])
        first += len(sizes[part])
        np.save(raw / f"{split}_feats.npy", features[part])
        np.save(raw / f"{split}_labels.npy", labels[part])
        np.save(raw / f"{split}_graph_id.npy", graph_id.astype(np.int64))
        graph = {
            "directed": False,
            "multigraph": False,
            "graph": {"name": "ppi-synthetic"},
            "nodes": [{"id": i} for i in range(len(graph_id))],
            "links": [{"source": i, "target": j} for i, j in links[part].tolist()],
        }
        (raw / f"{split}_graph.json").write_text(json.dumps(graph))


def _links(counts: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return the undirected edges of disjoint graphs without repetition, ``(E, 2)``."""
    graphs = []
    for nodes, first in zip(counts, np.cumsum([0, *counts[:-1]]), strict=True):
        weights = rng.pareto(_TAIL, nodes) + 1
        wanted = round(nodes * min(_DEGREE, (nodes - 1) / 3) / 2)
        # Twice as many as wanted: some are repeated, some are loops.
        pairs = np.sort(rng.choice(nodes, (2 * wanted, 2), p=weights / weights.sum()), axis=1)
        pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
        pairs = rng.permutation(pairs)[: wanted - 1]
        # PyG's loader numbers nodes from the first that has an edge.
        graphs.append(np.unique(np.concatenate([[(0, 1)], pairs]), axis=0) + first)
    return np.concatenate(graphs)


def _labels(
    features: dict[str, np.ndarray], links: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    own, received = rng.standard_normal((2, FEATURES, _RANK))
    mixing = rng.standard_normal((_RANK, LABELS))
    scores = {}
    for part, u in features.items():
        neighbours = np.zeros_like(u)  # sums of u over the neighbours of each node
        for source, target in (links[part].T, links[part].T[::-1]):
            np.add.at(neighbours, target, u[source])
        scores[part] = (u @ own + neighbours @ received / np.sqrt(_DEGREE)) @ mixing
    rates = rng.uniform(0, 2 * _LABELLED, LABELS)
    thresholds = np.quantile(scores["train"], 1 - rates, axis=0).diagonal()
    return {part: (score > thresholds).astype(np.int64) for part, score in scores.items()}


class MultilabelGraph(NamedTuple):
    """One graph, whose nodes have any number of labels; made once, used in every epoch."""

    features: Tensor  # (N, F)
    propagation: Propagation  # the plain adjacency A, (N, N)
    labels: Tensor  # 0 or 1, (N, labels)
    spectral_radius: float  # of A


@dataclass(kw_only=True, eq=False)
class PPI(GraphModule):
    """Protein interactions in 24 tissues (Zitnik and Leskovec, 2017), one graph a batch.

    20 graphs train, 2 validate, 2 are tested; 56,944 nodes with 50 features, as they are in the
    files, and 121 labels. The adjacency is plain: no self loops, no normalisation.

    ``name="ppi-synthetic"`` makes random graphs of these shapes (:func:`.write_ppi`).
    """

    evaluation_sets = ("test", "validation")

    root: str  # holds ppi/raw
    name: str = "PPI"
    scale: float = 1.0  # nodes of each synthetic graph, relative to PPI's
    seed: int = 0  # of the synthetic graphs

    def __post_init__(self) -> None:
        super().__init__()
        name, scale = self.name, self.scale
        check_choice("dataset.name", name, ("PPI", _SYNTHETIC))
        if not 0 < scale <= 1 or (name == "PPI" and scale != 1):
            allowed = "1 for PPI itself" if name == "PPI" else "in (0, 1]"
            raise UserError(f"dataset.scale must be {allowed}, got {scale}")
        self.check_settings(0, "seed")
        if name == "PPI":
            self._read(Path(self.root, "ppi", "raw"))
        else:
            with TemporaryDirectory() as folder:
                write_ppi(Path(folder), scale, self.seed)
                self._read(Path(folder))

    def _read(self, raw: Path) -> None:
        paths = [raw / file for file in FILES]
        missing = [path.name for path in paths if not path.exists()]
        if missing:
            raise missing_data(f"PPI lacks {', '.join(missing)} in {raw}", "PPI")
        sizes = scaled(self.scale)
        self._graphs = {
            part: [
                MultilabelGraph(x, adjacency(edges, len(x)), y, spectral_radius(edges, len(x)))
                for x, edges, y in read_graphs(raw, split, sizes[part])
            ]
            for part, split in SPLITS.items()
        }
        self._fingerprint = fingerprint(paths)

    def sizes(self) -> dict[str, float]:
        radius = self._radius("train")
        return {"in_channels": FEATURES, "labels": LABELS, "spectral_radius": radius}

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "name": self.name,
            "fingerprint": self._fingerprint,
            "nodes": sum(len(graph.labels) for graph in chain(*self._graphs.values())),
            **{part: len(graphs) for part, graphs in self._graphs.items()},
            "spectral_radius": {part: self._radius(part) for part in self._graphs},
        }
        if self.name == _SYNTHETIC:
            facts["reduced"] = f"synthetic, {self.scale:g} of PPI's nodes"
        return facts

    def constant_score(self, part: str) -> float | None:
        return constant_micro_f1(torch.cat([graph.labels for graph in self._graphs[part]]))

    def loader(self, part: str) -> Any:
        graphs = self._graphs[part]
        sampler = Shuffled(graphs, *self.share) if part == "train" else None
        return ResumableLoader(graphs, batch_size=None, sampler=sampler)

    def _radius(self, part: str) -> float:
        return max(graph.spectral_radius for graph in self._graphs[part])


def read_graphs(raw: Path, split: str, sizes: Sequence[int]) -> list[Graph]:
    """Read graphs of ``sizes`` nodes, one part of PPI, as PyG does but in a tenth of its time."""
    try:
        features, labels, number = (
            torch.from_numpy(np.load(raw / f"{split}_{kind}.npy"))
            for kind in ("feats", "labels", "graph_id")
        )
        content = json.loads((raw / f"{split}_graph.json").read_text())
        links = torch.tensor([(link["source"], link["target"]) for link in content["links"]])
        number = number - number.min()
        if number.tolist() != np.repeat(range(len(sizes)), sizes).tolist():
            raise ValueError("the graphs have other numbers of nodes")
        widths, nodes = (FEATURES, LABELS), len(number)
        if [*features.shape, *labels.shape] != [nodes, widths[0], nodes, widths[1]]:
            raise ValueError("nodes must have {} features and {} labels".format(*widths))
        if not content["directed"]:
            links = torch.cat([links, links.flip(1)])
        edges = torch.unique(links[links[:, 0] != links[:, 1]], dim=0).T
        owners = number[edges]
        edges -= (number.bincount().cumsum(0) - number.bincount())[owners]
        parts = zip(torch.split(features, [*sizes]), torch.split(labels, [*sizes]), strict=True)
        return [
            Graph(x.float(), edges[:, (owners == i).all(dim=0)], y.float())
            for i, (x, y) in enumerate(parts)
        ]
    except Exception as error:  # a damaged file can raise almost anything
        problem = f"{split}_* in {raw} cannot be read ({type(error).__name__}: {error})"
        raise missing_data(problem, "PPI") from error


def constant_micro_f1(labels: Tensor) -> float:
    """Return the micro-F1 of predicting, for every node, the labels that more than half have.

    A model that cannot tell nodes apart reaches it by minimising cross-entropy.
    """
    frequency = labels.double().mean(dim=0)
    usual = frequency > 0.5
    return float(2 * frequency[usual].sum() / (usual.sum() + frequency.sum()).clamp_min(1e-12))


def spectral_radius(edges: Tensor, nodes: int) -> float:
    """Return the spectral radius of the adjacency of ``edges``, ``(2, E)``, from a fixed start."""
    sources, targets = edges.numpy()
    matrix = coo_array((np.ones(len(sources)), (sources, targets)), shape=(nodes, nodes))
    if nodes <= _DENSE:
        return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())
    found = eigs(matrix.tocsr(), k=1, v0=np.ones(nodes), return_eigenvectors=False)
    return float(np.abs(found).max())
