"""PPI and its synthetic twin: batches, order, facts, errors, and the synthetic files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graph_data import PPI_SCALE

from phantomgrad_suite.data import PPI
from phantomgrad_suite.data.graphs.ppi import constant_micro_f1, spectral_radius
from phantomgrad_suite.data.graphs.ppi_files import FILES, scaled, write_ppi
from phantomgrad_suite.data.sources import fingerprint
from phantomgrad_suite.runs.errors import MissingDataError, UserError

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


def test_every_epoch_has_a_new_order(data: PPI) -> None:
    loader = data.train_dataloader()
    torch.manual_seed(1)
    orders = [[id(graph) for graph in loader] for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(map(id, data._graphs["train"]))
    before = torch.get_rng_state()
    assert [len(list(loader)) for loader in data.val_dataloader()] == [2, 2]
    assert torch.equal(torch.get_rng_state(), before)


def test_facts_name_synthetic_data(data: PPI) -> None:
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


def test_constant_predictor_gives_the_labels_of_the_majority() -> None:
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
    counts = 2 * 7 / (8 + 8)  # seven hits; eight predicted, eight there
    assert constant_micro_f1(labels) == pytest.approx(counts)
    assert constant_micro_f1(torch.eye(4)) == 0


# --- Errors ----------------------------------------------------------------------------------


def test_missing_data_set_names_the_command(tmp_path: Path) -> None:
    missing = f"PPI lacks {', '.join(FILES)} in {tmp_path}/ppi/raw: fetch it with"
    with pytest.raises(MissingDataError, match=missing):
        PPI(root=str(tmp_path))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"name": "ppi"}, "dataset.name must be PPI or ppi-synthetic, got 'ppi'"),
        ({"scale": 0.5}, "dataset.scale must be 1 for PPI itself, got 0.5"),
        ({"name": "ppi-synthetic", "scale": 0}, r"dataset.scale must be in \(0, 1\], got 0"),
        ({"name": "ppi-synthetic", "scale": 1.5}, r"dataset.scale must be in \(0, 1\], got 1.5"),
        ({"seed": -1}, "dataset.seed must be at least 0, got -1"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, bad: dict[str, Any], message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        PPI(root=str(tmp_path), **bad)
    assert list(tmp_path.iterdir()) == []


def test_synthetic_files_are_never_taken_for_ppi(
    ppi_root: Path, tmp_path: Path, small_ppi: None
) -> None:
    """Not even under its name, and with its sizes."""
    shutil.copytree(ppi_root / "ppi-synthetic" / f"scale{PPI_SCALE}-seed0", tmp_path / "ppi")
    with pytest.raises(UserError, match=r"ppi/raw holds synthetic graphs, not PPI: delete"):
        PPI(root=str(tmp_path))


def save(path: Path, change: Any) -> None:
    np.save(path, change(np.load(path)))


@pytest.mark.parametrize(
    ("file", "damage", "reason"),
    [
        ("valid_feats.npy", lambda p: p.write_bytes(p.read_bytes()[:100]), "cannot be read"),
        ("test_feats.npy", lambda p: save(p, lambda a: a[:, :49]), "cannot be read|50 features"),
        ("test_labels.npy", lambda p: save(p, lambda a: a + 1), "labels, 0 or 1"),
        ("train_graph_id.npy", lambda p: save(p, lambda a: a.clip(a[0] + 1)), "numbers of nodes"),
        ("test_graph.json", lambda p: p.write_text(p.read_text()[:-9]), "cannot be read"),
    ],
)
def test_error_of_a_damaged_file_is_one_line(
    ppi_files: Path, tmp_path: Path, file: str, damage: Any, reason: str
) -> None:
    shutil.copytree(ppi_files, tmp_path / "data" / "ppi" / "raw")
    damage(tmp_path / "data" / "ppi" / "raw" / file)
    with pytest.raises(UserError, match=rf"ppi/raw .*({reason}).*: delete .* again") as error:
        PPI(root=str(tmp_path / "data"))
    assert "\n" not in str(error.value)


# --- Synthetic files -------------------------------------------------------------------------


def test_twelve_files_have_the_shapes_of_ppi(tmp_path: Path) -> None:
    write_ppi(tmp_path / "raw", scale=0.01, seed=1)
    assert sorted(p.name for p in (tmp_path / "raw").iterdir()) == sorted(FILES)
    first = 1
    for part, split in (("train", "train"), ("validation", "valid"), ("test", "test")):
        arrays = {k: np.load(tmp_path / "raw" / f"{split}_{k}.npy") for k in ("feats", "labels")}
        ids = np.load(tmp_path / "raw" / f"{split}_graph_id.npy")
        counts = scaled(0.01)[part]
        assert ids.tolist() == np.repeat(range(first, first + len(counts)), counts).tolist()
        assert (arrays["feats"].shape, arrays["feats"].dtype) == ((len(ids), 50), np.float64)
        assert (arrays["labels"].shape, arrays["labels"].dtype) == ((len(ids), 121), np.int64)
        first += len(counts)


def test_statistics_are_like_those_of_ppi(tmp_path: Path) -> None:
    """Mean degree 27.3 with heavy tails, nine tenths of an indicator a node, scaled columns."""
    write_ppi(tmp_path / "raw", scale=0.08, seed=0)
    graph = json.loads((tmp_path / "raw" / "train_graph.json").read_text())
    links = np.array([(link["source"], link["target"]) for link in graph["links"]])
    nodes = len(graph["nodes"])
    assert 2 * len(links) / nodes == pytest.approx(27.3, rel=0.05)
    degrees = np.bincount(links.ravel(), minlength=nodes)
    assert degrees.max() > 2.5 * degrees.mean()
    features = np.load(tmp_path / "raw" / "train_feats.npy")
    assert np.abs(features.mean(axis=0)).max() < 1e-12
    assert (np.abs(features[:, 10]) == 0).all()
    deviations = np.delete(features.std(axis=0), 10)
    assert ((np.abs(deviations - 1) < 1e-12) | (deviations == 0)).all()
    assert all(len(np.unique(column)) <= 2 for column in features.T)
    held = (features > features.min(axis=0)).sum(axis=1)
    assert held.mean() == pytest.approx(0.9, abs=0.2)
    labels = np.load(tmp_path / "raw" / "train_labels.npy")
    assert labels.mean() == pytest.approx(0.3, abs=0.06)
    assert labels.mean(axis=0).max() <= 0.61


def test_files_depend_on_seed_and_scale_alone(tmp_path: Path) -> None:
    made = {}
    for name, arguments in {"a": (PPI_SCALE, 0), "b": (PPI_SCALE, 0), "c": (PPI_SCALE, 1)}.items():
        write_ppi(tmp_path / name, *arguments)
        made[name] = fingerprint(tmp_path / name / file for file in FILES)
    assert made["a"] == made["b"] != made["c"]
