"""Synthetic graphs in the shapes of PPI, written as its files."""

import json
from pathlib import Path

import numpy as np

SYNTHETIC = "ppi-synthetic"
FEATURES, LABELS = 50, 121
SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # how files name the parts
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
            "graph": {"name": SYNTHETIC},
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
