"""PPI and its synthetic twin: graphs, their order and their spectral radii."""

import json

import pytest
import torch
from graph_data import PPI_SCALE

from phantomgrad_suite.data import PPI
from phantomgrad_suite.data.graphs import pyg
from phantomgrad_suite.data.graphs.ppi import spectral_radius
from phantomgrad_suite.data.graphs.ppi_synthetic import write_ppi

pytestmark = pytest.mark.usefixtures("float32")


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


def test_every_epoch_has_a_new_order():
    data = PPI(root="nowhere", name="ppi-synthetic", scale=PPI_SCALE)
    loader = data.train_dataloader()
    torch.manual_seed(1)
    orders = [[id(graph) for graph in loader] for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(map(id, data._graphs["train"]))
    before = torch.get_rng_state()
    assert [len(list(loader)) for loader in data.val_dataloader()] == [2, 2]
    assert torch.equal(torch.get_rng_state(), before)


def test_spectral_radius_of_a_large_graph_is_the_dense_one():
    """Also of a directed one."""
    generator = torch.Generator().manual_seed(0)
    dense = (torch.rand(400, 400, generator=generator) < 0.05).double()
    for matrix in (dense, (dense + dense.mT).clamp_max(1)):
        expected = torch.linalg.eigvals(matrix).abs().max().item()
        assert spectral_radius(matrix.nonzero().mT, 400) == pytest.approx(expected, rel=1e-9)
