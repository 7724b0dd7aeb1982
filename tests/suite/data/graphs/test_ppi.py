"""PPI and its synthetic twin: batches, order, facts, errors, and the synthetic files."""

import json

import numpy as np
import pytest
import torch
from graph_data import PPI_SCALE

from phantomgrad_suite.data import PPI
from phantomgrad_suite.data.graphs import pyg
from phantomgrad_suite.data.graphs.ppi import constant_micro_f1, spectral_radius, write_ppi
from phantomgrad_suite.runs.errors import UserError

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


def test_constant_predictor_gives_the_labels_of_the_majority():
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
    counts = 2 * 7 / (8 + 8)  # seven hits; eight predicted, eight there
    assert constant_micro_f1(labels) == pytest.approx(counts)
    assert constant_micro_f1(torch.eye(4)) == 0


def save(path, change):
    np.save(path, change(np.load(path)))


def with_nan(features):
    features[2, 7] = np.nan
    return features


@pytest.mark.parametrize(
    ("file", "damage", "reason"),
    [
        ("valid_feats.npy", lambda p: p.write_bytes(p.read_bytes()[:100]), "Error"),
        ("test_feats.npy", lambda p: save(p, lambda a: a[:, :49]), "50 features"),
        ("test_feats.npy", lambda p: save(p, with_nan), "feats.npy, row 3: .* finite, got nan"),
        ("test_labels.npy", lambda p: save(p, lambda a: a + 1), "0 or 1"),
        ("train_graph_id.npy", lambda p: save(p, lambda a: a.clip(a[0] + 1)), "numbers of nodes"),
        ("test_graph.json", lambda p: p.write_text(p.read_text()[:-9]), "JSON"),
    ],
)
def test_error_of_a_damaged_file_is_one_line(small_ppi, tmp_path, file, damage, reason):
    write_ppi(tmp_path / "ppi" / "raw")
    damage(tmp_path / "ppi" / "raw" / file)
    with pytest.raises(UserError, match=rf"ppi/raw cannot .*({reason}).*: fetch it with") as error:
        PPI(root=str(tmp_path))
    assert "\n" not in str(error.value)


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
