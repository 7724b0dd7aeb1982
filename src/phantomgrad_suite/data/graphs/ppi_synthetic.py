"""Random graphs in the shapes and the file format of PPI, for tests and timings."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from phantomgrad_suite.data.graphs.ppi_files import FEATURES, LABELS, SPLITS, scaled

_DEGREE = 27.3  # neighbours of a node of PPI in the mean
_TAIL = 2.5  # exponent of the weights that the ends of an edge are drawn by
_INDICATORS = 0.9  # features that a node of PPI has in the mean
_CONSTANT = 10  # the column of PPI that holds nothing
_RANK = 8  # of the scores of the labels, which have much in common
_LABELLED = 0.3  # of the nodes, in the mean over the labels: an assumption


def write_once(root: Path, scale: float, seed: int) -> Path:
    """Return the folder of synthetic graphs below ``root``, and write it where it is not there.

    Processes may ask at the same time: each writes a folder of its own, the first one stays.

    Args:
        root: of all synthetic graphs.
        scale: see :func:`write_ppi`.
        seed: likewise.
    """
    folder = root / f"scale{scale:g}-seed{seed}"
    if (folder / "raw").exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".part-") as part:
        write_ppi(Path(part) / "raw", scale, seed)
        folder.mkdir(exist_ok=True)
        try:
            (Path(part) / "raw").rename(folder / "raw")
        except OSError:
            if not (folder / "raw").exists():
                raise
    return folder


def write_ppi(raw: Path, scale: float = 1.0, seed: int = 0) -> None:
    r"""Write the twelve raw files of PPI with synthetic content.

    Graphs have the node counts of PPI's, times ``scale``, and its mean degree, as far as they are
    large enough, with heavy tails. Features U are sparse indicators, each scaled to mean 0 and
    deviation 1 over the training part. Labels are those entries of :math:`U M + A U N` that are
    the largest of their column, with random M and N of rank 8, so they can be learnt, but not
    without the neighbours; 3 in 10 nodes have a label in the mean.

    Args:
        raw: the folder to write.
        scale: nodes of a graph, relative to PPI's, in (0, 1].
        seed: of all that is random.
    """
    rng = np.random.default_rng(seed)
    raw.mkdir(parents=True)
    sizes = scaled(scale)
    links = {part: _links(counts, rng) for part, counts in sizes.items()}
    rates = rng.dirichlet(np.ones(FEATURES - 1)) * _INDICATORS
    rates = np.insert(rates.clip(0.005, 0.5), _CONSTANT, 0)
    features = {part: rng.random((sum(n), FEATURES)) < rates for part, n in sizes.items()}
    mean, deviation = features["train"].mean(axis=0), features["train"].std(axis=0)
    deviation[deviation == 0] = 1
    scaled_features = {part: (u - mean) / deviation for part, u in features.items()}
    labels = _labels(scaled_features, links, rng)
    first = 1
    for part, split in SPLITS.items():
        graph_id = np.repeat(np.arange(first, first + len(sizes[part])), sizes[part])
        first += len(sizes[part])
        np.save(raw / f"{split}_feats.npy", scaled_features[part])
        np.save(raw / f"{split}_labels.npy", labels[part])
        np.save(raw / f"{split}_graph_id.npy", graph_id.astype(np.int64))
        (raw / f"{split}_graph.json").write_text(_node_link(len(graph_id), links[part]))


def _links(counts: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return the undirected edges of graphs side by side, ``(E, 2)``, none twice."""
    firsts = np.cumsum([0, *counts[:-1]])
    found = [_graph(n, rng) + first for n, first in zip(counts, firsts, strict=True)]
    return np.concatenate(found)


def _graph(nodes: int, rng: np.random.Generator) -> np.ndarray:
    weights = rng.pareto(_TAIL, nodes) + 1
    wanted = round(nodes * min(_DEGREE, (nodes - 1) / 3) / 2)
    # Twice as many as wanted: some are drawn again, some are loops.
    pairs = np.sort(rng.choice(nodes, (2 * wanted, 2), p=weights / weights.sum()), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    pairs = rng.permutation(pairs)[: wanted - 1]
    # The loader counts nodes from the first that has an edge.
    return np.unique(np.concatenate([[(0, 1)], pairs]), axis=0)


def _labels(
    features: dict[str, np.ndarray], links: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    own, received = rng.standard_normal((2, FEATURES, _RANK))
    mixing = rng.standard_normal((_RANK, LABELS))
    scores = {
        part: (u @ own + _summed(u, links[part]) @ received / np.sqrt(_DEGREE)) @ mixing
        for part, u in features.items()
    }
    rates = rng.uniform(0, 2 * _LABELLED, LABELS)
    thresholds = np.quantile(scores["train"], 1 - rates, axis=0).diagonal()
    return {part: (score > thresholds).astype(np.int64) for part, score in scores.items()}


def _summed(u: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Return the sum of ``u`` over the neighbours of each node."""
    total = np.zeros_like(u)
    for source, target in (links.T, links.T[::-1]):
        np.add.at(total, target, u[source])
    return total


def _node_link(nodes: int, links: np.ndarray) -> str:
    return json.dumps(
        {
            "directed": False,
            "multigraph": False,
            "graph": {"name": "ppi-synthetic"},
            "nodes": [{"id": i} for i in range(nodes)],
            "links": [{"source": i, "target": j} for i, j in links.tolist()],
        }
    )
