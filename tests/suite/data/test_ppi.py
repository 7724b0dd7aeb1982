"""PPI as the module loads it: its batches, its order, and what it says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from graph_data import PPI_SCALE

from phantomgrad_suite.data import PPI
from phantomgrad_suite.data.graphs.ppi import constant_micro_f1, spectral_radius
from phantomgrad_suite.data.graphs.ppi_files import scaled

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def data(ppi_root: Path) -> PPI:
    return PPI(root=str(ppi_root), name="ppi-synthetic", scale=PPI_SCALE)


def test_batches_are_the_graphs_of_the_files(ppi_root: Path, data: PPI) -> None:
    raw = ppi_root / "ppi-synthetic" / f"scale{PPI_SCALE}-seed0" / "raw"
    features, labels = np.load(raw / "test_feats.npy"), np.load(raw / "test_labels.npy")
    links = json.loads((raw / "test_graph.json").read_text())["links"]
    dense = torch.zeros(len(labels), len(labels))
    for link in links:
        dense[link["source"], link["target"]] = dense[link["target"], link["source"]] = 1
    first = 0
    test, _ = data.val_dataloader()
    for graph in test:
        part = slice(first, first + len(graph.labels))
        assert torch.equal(graph.features, torch.from_numpy(features[part]).float())
        assert torch.equal(graph.labels, torch.from_numpy(labels[part]).float())
        assert torch.equal(graph.propagation.to_dense(), dense[part, part])
        radius = torch.linalg.eigvalsh(dense[part, part].double()).max().item()
        assert graph.spectral_radius == pytest.approx(radius, rel=1e-9)
        first = part.stop
    assert first == len(labels)


def test_every_epoch_has_an_order_of_its_own(data: PPI) -> None:
    loader = data.train_dataloader()
    torch.manual_seed(1)
    orders = [[id(graph) for graph in loader] for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(map(id, data._graphs["train"]))
    before = torch.get_rng_state()
    assert [len(list(loader)) for loader in data.val_dataloader()] == [2, 2]
    assert torch.equal(torch.get_rng_state(), before)


def test_model_and_task_are_told_sizes_and_the_radius_of_training(data: PPI) -> None:
    radii = {part: [g.spectral_radius for g in graphs] for part, graphs in data._graphs.items()}
    largest = max(radii["train"])
    assert dict(data.sizes()) == {"in_channels": 50, "labels": 121, "spectral_radius": largest}
    assert data.targets() == {"labels": 121}
    assert largest == data.facts()["spectral_radius"]["train"]
    assert data.facts()["spectral_radius"]["test"] == max(radii["test"])


def test_synthetic_data_say_that_they_are(data: PPI) -> None:
    facts = data.facts()
    assert facts["name"] == "ppi-synthetic"
    assert facts["reduced"] == "synthetic, 0.005 of PPI's nodes"
    assert [facts[part] for part in ("train", "validation", "test")] == [20, 2, 2]
    assert facts["nodes"] == sum(map(sum, scaled(PPI_SCALE).values()))
    assert facts["fingerprint"].startswith("sha256:")


def test_graph_moves_whole(data: PPI) -> None:
    graph = data._graphs["train"][0]
    moved = graph.to("meta")
    assert {moved.features.device.type, moved.labels.device.type} == {"meta"}
    assert moved.spectral_radius == graph.spectral_radius


@pytest.mark.parametrize("nodes", [50, 400])
def test_spectral_radius_is_the_dense_one(nodes: int) -> None:
    """By all eigenvalues and by the largest alone; of directed graphs too."""
    generator = torch.Generator().manual_seed(0)
    dense = (torch.rand(nodes, nodes, generator=generator) < 0.05).double()
    for matrix in (dense, (dense + dense.mT).clamp_max(1)):
        expected = torch.linalg.eigvals(matrix).abs().max().item()
        assert spectral_radius(matrix.nonzero().mT, nodes) == pytest.approx(expected, rel=1e-9)


def test_constant_predictor_gives_the_labels_of_the_most() -> None:
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
    counts = 2 * 7 / (8 + 8)  # seven hits; eight predicted, eight there
    assert constant_micro_f1(labels) == pytest.approx(counts)
    assert constant_micro_f1(torch.eye(4)) == 0
