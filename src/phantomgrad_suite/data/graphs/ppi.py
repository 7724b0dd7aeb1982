"""PPI, 24 graphs of proteins with many labels each."""

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
from phantomgrad_suite.data.graphs.ppi_synthetic import (
    FEATURES,
    LABELS,
    SPLITS,
    SYNTHETIC,
    scaled,
    write_ppi,
)
from phantomgrad_suite.data.sources import fingerprint
from phantomgrad_suite.runs.errors import UserError

FILES = tuple(
    f"{split}_{kind}"
    for split in SPLITS.values()
    for kind in ("feats.npy", "labels.npy", "graph_id.npy", "graph.json")
)
_DENSE = 200  # nodes up to which all eigenvalues cost less than the largest alone


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
        check_choice("dataset.name", name, ("PPI", SYNTHETIC))
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
        if self.name == SYNTHETIC:
            facts["reduced"] = f"synthetic, {self.scale:g} of PPI's nodes"
        return facts

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


def spectral_radius(edges: Tensor, nodes: int) -> float:
    """Return the spectral radius of the adjacency of ``edges``, ``(2, E)``, from a fixed start."""
    sources, targets = edges.numpy()
    matrix = coo_array((np.ones(len(sources)), (sources, targets)), shape=(nodes, nodes))
    if nodes <= _DENSE:
        return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())
    found = eigs(matrix.tocsr(), k=1, v0=np.ones(nodes), return_eigenvectors=False)
    return float(np.abs(found).max())
