"""PPI, 24 graphs of proteins with many labels each, and synthetic graphs of its shapes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phantomgrad.nn.propagation import Propagation, adjacency
from phantomgrad_suite.data.base import DataModule, missing_data
from phantomgrad_suite.data.graphs import ppi_files
from phantomgrad_suite.data.graphs.base import Graph, GraphData, damaged, load_graphs
from phantomgrad_suite.data.loaders import ResumableLoader, Shuffled, fixed_batches
from phantomgrad_suite.data.sources import fingerprint
from phantomgrad_suite.runs.errors import UserError

_SYNTHETIC = "ppi-synthetic"
_DENSE = 200  # nodes up to which all eigenvalues cost less than the largest alone


@dataclass(frozen=True)
class MultilabelGraph(GraphData):
    """One graph, whose nodes have any number of labels; made once, used in every epoch."""

    features: Tensor  # (N, F)
    propagation: Propagation  # the plain adjacency A, (N, N)
    labels: Tensor  # 0 or 1, (N, labels)
    spectral_radius: float  # of A


@dataclass(kw_only=True, eq=False)
class PPI(DataModule):
    """Protein interactions in 24 tissues (Zitnik and Leskovec, 2017), one graph a batch.

    20 graphs train, 2 validate, 2 are tested; 56,944 nodes with 50 features, as they are in the
    files, and 121 labels. The adjacency is plain: no self loops, no normalisation.

    ``name="ppi-synthetic"`` makes random graphs of these shapes (:func:`.write_ppi`), and writes
    them when they are first used. Results on them are never compared with those on PPI.

    Args:
        root: the folder that holds ``ppi/raw``, or where ``ppi-synthetic`` is written.
        name: ``"PPI"`` or ``"ppi-synthetic"``.
        scale: of the synthetic graphs: nodes of each, relative to PPI's.
        seed: of the synthetic graphs.

    Raises:
        MissingDataError: PPI is not in ``root``.
        UserError: the files are damaged.
    """

    evaluation_sets = ("test", "validation")

    root: str
    name: str = "PPI"
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        root, name, scale = Path(self.root), self.name, self.scale
        if name not in ("PPI", _SYNTHETIC):
            raise UserError(f"dataset.name must be PPI or {_SYNTHETIC}, got {name!r}")
        if not 0 < scale <= 1 or (name == "PPI" and scale != 1):
            allowed = "1 for PPI itself" if name == "PPI" else "in (0, 1]"
            raise UserError(f"dataset.scale must be {allowed}, got {scale}")
        self.check_settings(0, "seed")
        raw = root / "ppi" / "raw"
        if name == _SYNTHETIC:
            raw = ppi_files.write_once(root / _SYNTHETIC, scale, self.seed)
        self._files = [raw / file for file in ppi_files.FILES]
        missing = [path.name for path in self._files if not path.exists()]
        if missing:
            raise missing_data(f"PPI lacks {', '.join(missing)} in {raw}", "PPI")
        graphs = load_graphs("PPI", self._files, "PPI", ["train", "val", "test"])
        _check(raw, name, graphs, [*chain(*ppi_files.scaled(scale).values())])
        rest = (
            MultilabelGraph(x, adjacency(edges, len(x)), y, spectral_radius(edges, len(x)))
            for x, edges, y in graphs
        )
        self._graphs = {part: [*islice(rest, len(n))] for part, n in ppi_files.NODES.items()}

    def sizes(self) -> dict[str, float]:
        """Return the widths of features and labels, and the largest radius of a training graph."""
        width = self._graphs["train"][0].features.shape[1]
        return {"in_channels": width, **self.targets(), "spectral_radius": self._radius("train")}

    def targets(self) -> dict[str, int]:
        """Return the number of labels."""
        return {"labels": self._graphs["train"][0].labels.shape[1]}

    def facts(self) -> dict[str, Any]:
        """Return name, fingerprint, graphs of each part, and their largest spectral radii."""
        facts: dict[str, Any] = {
            "name": self.name,
            "fingerprint": fingerprint(self._files),
            "nodes": sum(len(graph.labels) for graph in chain(*self._graphs.values())),
            **{part: len(graphs) for part, graphs in self._graphs.items()},
            "spectral_radius": {part: self._radius(part) for part in self._graphs},
        }
        if self.name == _SYNTHETIC:
            facts["reduced"] = f"synthetic, {self.scale:g} of PPI's nodes"
        return facts

    def constant_score(self, part: str) -> float | None:
        """Return the micro-F1 of a predictor that ignores the features."""
        return constant_micro_f1(torch.cat([graph.labels for graph in self._graphs[part]]))

    def loader(self, part: str) -> Any:
        """Return the graphs of a part; those of training in an order from the global generator."""
        graphs = self._graphs[part]
        if part == "train":
            return ResumableLoader(graphs, batch_size=None, sampler=Shuffled(graphs))
        return fixed_batches(graphs)

    def _radius(self, part: str) -> float:
        return max(graph.spectral_radius for graph in self._graphs[part])


def constant_micro_f1(labels: Tensor) -> float:
    """Return the micro-F1 of predicting, for every node, the labels that more than half have.

    A model that cannot tell nodes apart reaches it by minimising cross-entropy. ``labels`` are 0 or
    1, ``(N, labels)``.
    """
    frequency = labels.double().mean(dim=0)
    usual = frequency > 0.5
    return float(2 * frequency[usual].sum() / (usual.sum() + frequency.sum()).clamp_min(1e-12))


def spectral_radius(edges: Tensor, nodes: int) -> float:
    """Return the spectral radius of the adjacency of ``edges``, ``(2, E)``, from a fixed start."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import eigs

    sources, targets = edges.numpy()
    matrix = coo_array((np.ones(len(sources)), (sources, targets)), shape=(nodes, nodes))
    if nodes <= _DENSE:
        return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())
    found = eigs(matrix.tocsr(), k=1, v0=np.ones(nodes), return_eigenvectors=False)
    return float(np.abs(found).max())


def _check(raw: Path, name: str, graphs: list[Graph], nodes: list[int]) -> None:
    """Raise unless the graphs are those of the data set, which PyG does not check."""
    with (raw / "train_graph.json").open() as file:
        synthetic = _SYNTHETIC in file.read(200)
    if synthetic != (name == _SYNTHETIC):
        raise damaged(f"{raw} holds synthetic graphs, not PPI", name)
    if [len(graph.features) for graph in graphs] != nodes:
        raise damaged(f"the graphs in {raw} have other numbers of nodes than {name}", name)
    shape = (ppi_files.FEATURES, ppi_files.LABELS)
    for features, _, labels in graphs:
        if (features.shape[1], labels.shape[1]) != shape or not (
            (labels == 0) | (labels == 1)
        ).all():
            raise damaged(f"{raw} must have 50 features and 121 labels, 0 or 1", name)
