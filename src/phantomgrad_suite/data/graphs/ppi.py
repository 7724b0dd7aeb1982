"""PPI, 24 graphs of proteins with many labels each, and synthetic graphs of its shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from phantomgrad.checks import check_at_least
from phantomgrad.models import Propagation, adjacency
from phantomgrad_suite.data.base import DataModule, fixed_batches
from phantomgrad_suite.data.graphs.ppi_files import FILES, NODES, fingerprint, load, scaled
from phantomgrad_suite.data.graphs.ppi_synthetic import write_once
from phantomgrad_suite.data.loaders import ResumableLoader, Shuffled
from phantomgrad_suite.runs.errors import MissingDataError, UserError

FOLDER = "ppi"
SYNTHETIC = "ppi-synthetic"
_DENSE = 200  # nodes up to which all eigenvalues cost less than the largest


@dataclass(frozen=True)
class MultilabelGraph:
    """One graph, whose nodes have any number of labels; made once, used every epoch.

    Attributes:
        features: U, ``(N, F)``.
        propagation: the plain adjacency A, ``(N, N)``.
        labels: 0 or 1, ``(N, labels)``.
        spectral_radius: of A.
    """

    features: Tensor
    propagation: Propagation
    labels: Tensor
    spectral_radius: float

    def to(self, *args: Any, **kwargs: Any) -> MultilabelGraph:
        """Return a copy on another device (Lightning moves batches by this)."""
        return MultilabelGraph(
            self.features.to(*args, **kwargs),
            self.propagation.to(*args, **kwargs),
            self.labels.to(*args, **kwargs),
            self.spectral_radius,
        )


class PPI(DataModule):
    """Protein interactions in 24 tissues (Zitnik and Leskovec, 2017), one graph a batch.

    20 graphs train, 2 validate, 2 are tested; 56,944 nodes with 50 features, as they are in the
    files, and 121 labels. The adjacency is plain: no self loops, no normalisation.

    ``name`` may also be ``"ppi-synthetic"``: random graphs of these shapes, see
    :func:`phantomgrad_suite.data.graphs.ppi_synthetic.write_ppi`, written when they are first asked for.
    Results on them are called so, and never compared with those on PPI.

    Args:
        root: the folder that holds ``ppi/raw``, or gets ``ppi-synthetic``.
        name: ``"PPI"`` or ``"ppi-synthetic"``.
        scale: of the synthetic graphs: nodes of each, relative to PPI's.
        seed: of the synthetic graphs.

    Raises:
        MissingDataError: PPI is not there.
        UserError: ``name`` is another, ``scale`` is not in (0, 1], or the files are damaged.
        ValueError: ``seed`` is no number from 0.
    """

    evaluation_sets = ("test", "validation")

    def __init__(self, *, root: str, name: str = "PPI", scale: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        if name not in ("PPI", SYNTHETIC):
            raise UserError(f"dataset.name must be PPI or {SYNTHETIC}, got {name!r}")
        if not 0 < scale <= 1 or (name == "PPI" and scale != 1):
            allowed = "1 for PPI itself" if name == "PPI" else "in (0, 1]"
            raise UserError(f"dataset.scale must be {allowed}, got {scale}")
        check_at_least("dataset.seed", seed, 0)
        self._name, self._scale = name, scale
        if name == "PPI":
            self._folder = _find(Path(root))
        else:
            self._folder = write_once(Path(root) / SYNTHETIC, scale, seed)
        nodes = NODES if name == "PPI" else scaled(scale)
        self._graphs = {
            part: [_prepared(graph) for graph in graphs]
            for part, graphs in load(self._folder, name, nodes).items()
        }

    def sizes(self) -> dict[str, float]:
        """Return the widths of features and labels, and the largest radius of a training graph."""
        return {
            "in_channels": self._graphs["train"][0].features.shape[1],
            **self.targets(),
            "spectral_radius": self._radius("train"),
        }

    def targets(self) -> dict[str, int]:
        """Return the number of labels."""
        return {"labels": self._graphs["train"][0].labels.shape[1]}

    def facts(self) -> dict[str, Any]:
        """Return name, fingerprint, graphs of each part, and their largest spectral radii."""
        facts: dict[str, Any] = {
            "name": self._name,
            "fingerprint": fingerprint(self._folder / "raw"),
            "nodes": sum(len(graph.labels) for part in self._graphs.values() for graph in part),
            **{part: len(graphs) for part, graphs in self._graphs.items()},
            "spectral_radius": {part: self._radius(part) for part in self._graphs},
        }
        if self._name == SYNTHETIC:
            facts["reduced"] = f"synthetic, {self._scale:g} of PPI's nodes"
        return facts

    def constant_score(self, part: str) -> float | None:
        """Return the micro-F1 of a predictor that looks at no features."""
        return constant_micro_f1(torch.cat([graph.labels for graph in self._graphs[part]]))

    def train_dataloader(self) -> DataLoader[MultilabelGraph]:
        """Return the training graphs; their order is drawn from torch's global generator."""
        graphs = self._graphs["train"]
        return ResumableLoader(graphs, batch_size=None, sampler=Shuffled(graphs))

    def val_dataloader(self) -> list[DataLoader[MultilabelGraph]]:
        """Return the graphs of each evaluation set."""
        return [fixed_batches(self._graphs[name]) for name in self.evaluation_sets]

    def _radius(self, part: str) -> float:
        return max(graph.spectral_radius for graph in self._graphs[part])


def constant_micro_f1(labels: Tensor) -> float:
    """Return the micro-F1 of predicting, for every node, the labels that more than half have.

    That is where cross-entropy leads a model that cannot tell nodes apart.

    Args:
        labels: 0 or 1, ``(N, labels)``.
    """
    frequency = labels.double().mean(dim=0)
    usual = frequency > 0.5
    return float(2 * frequency[usual].sum() / (usual.sum() + frequency.sum()).clamp_min(1e-12))


def spectral_radius(edges: Tensor, nodes: int) -> float:
    """Return the spectral radius of an adjacency, from a fixed start.

    Args:
        edges: ``(2, E)``, sources and targets.
        nodes: number of nodes.
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import eigs

    sources, targets = edges.numpy()
    matrix = coo_array((np.ones(len(sources)), (sources, targets)), shape=(nodes, nodes))
    if nodes <= _DENSE:
        return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())
    found = eigs(matrix.tocsr(), k=1, v0=np.ones(nodes), return_eigenvectors=False)
    return float(np.abs(found).max())


def _prepared(graph: Any) -> MultilabelGraph:
    edges, nodes = graph.edge_index, graph.num_nodes
    return MultilabelGraph(graph.x, adjacency(edges, nodes), graph.y, spectral_radius(edges, nodes))


def _find(root: Path) -> Path:
    folder = root / FOLDER
    missing = [file for file in FILES if not (folder / "raw" / file).exists()]
    if missing:
        raise MissingDataError(
            f"PPI lacks {missing[0]}{' and others' * (len(missing) > 1)} in {folder / 'raw'}: "
            "fetch it with `python scripts/fetch_data.py PPI` (or, without network, add "
            "`--from DIR`), or set dataset.root"
        )
    return folder
