"""Synthetic files of PPI: the shapes and statistics of the real ones, written once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from graph_data import PPI_SCALE

from phantomgrad_suite.data.graphs.ppi_files import FILES, NODES, fingerprint, scaled
from phantomgrad_suite.data.graphs.ppi_synthetic import write_once, write_ppi

pytestmark = pytest.mark.usefixtures("float32")


def test_real_graphs_have_the_known_nodes() -> None:
    assert [len(counts) for counts in NODES.values()] == [20, 2, 2]
    assert [sum(counts) for counts in NODES.values()] == [44_906, 6_514, 5_524]
    assert scaled(1.0) == {part: tuple(counts) for part, counts in NODES.items()}


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


def test_seed_and_scale_decide_alone(tmp_path: Path) -> None:
    made = {}
    for name, arguments in {"a": (PPI_SCALE, 0), "b": (PPI_SCALE, 0), "c": (PPI_SCALE, 1)}.items():
        write_ppi(tmp_path / name, *arguments)
        made[name] = fingerprint(tmp_path / name)
    assert made["a"] == made["b"] != made["c"]


def test_graphs_are_written_once(tmp_path: Path) -> None:
    folder = write_once(tmp_path, PPI_SCALE, 0)
    before = (folder / "raw" / FILES[0]).stat().st_mtime_ns
    assert write_once(tmp_path, PPI_SCALE, 0) == folder
    assert (folder / "raw" / FILES[0]).stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_second_writer_leaves_what_the_first_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found nothing, and write at the same time."""
    folder = tmp_path / f"scale{PPI_SCALE}-seed0"

    def late(raw: Path, scale: float, seed: int) -> None:
        write_ppi(raw, scale, seed)
        (folder / "raw").mkdir(parents=True)
        (folder / "raw" / "first").touch()

    monkeypatch.setattr("phantomgrad_suite.data.graphs.ppi_synthetic.write_ppi", late)
    assert write_once(tmp_path, PPI_SCALE, 0) == folder
    assert [path.name for path in (folder / "raw").iterdir()] == ["first"]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
