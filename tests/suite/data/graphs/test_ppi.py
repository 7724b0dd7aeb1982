"""PPI and its synthetic twin: batches, order, facts, errors, and the synthetic files."""

import json

import numpy as np
import pytest
import torch
from graph_data import PPI_SCALE

from phantomgrad_suite.data import PPI
from phantomgrad_suite.data.graphs import pyg
from phantomgrad_suite.data.graphs.ppi import spectral_radius
from phantomgrad_suite.data.graphs.ppi_synthetic import write_ppi

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def data():
    return PPI(root="nowhere", name="ppi-synthetic", scale=PPI_SCALE)


@pytest.mark.parametrize("directed", [False, True])
def test_graphs_are_those_that_pyg_reads(tmp_path, small_ppi, directed):
    """Only the order of edges differs."""
    write_ppi(tmp_path / "ppi" / "raw")
    for path in (tmp_path / "ppi" / "raw").glob("*.json") if directed else ():
        content = json.loads(path.read_text())
        links = [{"source": e["target"], "target": e["source"]} for e in content["links"]]
        links += [content["links"][0], {"source": 1, "target": 1}, *content["links"]]
        path.write_text(json.dumps({**content, "directed": True, "links": links}))
    graphs = PPI(root=str(tmp_path))._graphs
    for part, name in (("train", "train"), ("validation", "val"), ("test", "test")):
        expected = pyg("datasets").PPI(str(tmp_path / "ppi"), name)
        for graph, other in zip(graphs[part], expected, strict=True):
            dense = torch.zeros(len(other.x), len(other.x))
            dense[other.edge_index[1], other.edge_index[0]] = 1
            assert torch.equal(graph.propagation.to_dense(), dense)
            assert torch.equal(graph.features, other.x)
            assert torch.equal(graph.labels, other.y)
            radius = torch.linalg.eigvals(dense.double()).abs().max().item()
            assert graph.spectral_radius == pytest.approx(radius, rel=1e-9)


def test_every_epoch_has_a_new_order(data):
    assert data.facts()["reduced"] == "synthetic, 0.005 of PPI's nodes"
    loader = data.train_dataloader()
    torch.manual_seed(1)
    orders = [[id(graph) for graph in loader] for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(map(id, data._graphs["train"]))
    before = torch.get_rng_state()
    assert [len(list(loader)) for loader in data.val_dataloader()] == [2, 2]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("nodes", [50, 400])
def test_spectral_radius_is_the_dense_one(nodes):
    """It is computed from all eigenvalues or from the largest alone, also of directed graphs."""
    generator = torch.Generator().manual_seed(0)
    dense = (torch.rand(nodes, nodes, generator=generator) < 0.05).double()
    for matrix in (dense, (dense + dense.mT).clamp_max(1)):
        expected = torch.linalg.eigvals(matrix).abs().max().item()
        assert spectral_radius(matrix.nonzero().mT, nodes) == pytest.approx(expected, rel=1e-9)


def test_statistics_are_like_those_of_ppi(tmp_path):
    """The mean degree is 27.3 with heavy tails; a node has 0.9 of an indicator."""
    write_ppi(tmp_path / "raw", scale=0.08)
    graph = json.loads((tmp_path / "raw" / "train_graph.json").read_text())
    links = np.array([(link["source"], link["target"]) for link in graph["links"]])
    nodes = len(graph["nodes"])
    assert 2 * len(links) / nodes == pytest.approx(27.3, rel=0.05)
    degrees = np.bincount(links.ravel(), minlength=nodes)
    assert degrees.max() > 2.5 * degrees.mean()
    features = np.load(tmp_path / "raw" / "train_feats.npy")
    assert np.abs(features.mean(axis=0)).max() < 1e-12
    assert all(len(np.unique(column)) <= 2 for column in features.T)
    held = (features > features.min(axis=0)).sum(axis=1)
    assert held.mean() == pytest.approx(0.9, abs=0.2)
    labels = np.load(tmp_path / "raw" / "train_labels.npy")
    assert labels.mean() == pytest.approx(0.3, abs=0.06)
    assert labels.mean(axis=0).max() <= 0.61
