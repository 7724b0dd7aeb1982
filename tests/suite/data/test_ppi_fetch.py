"""PPI is fetched whole or not at all, and what is damaged or synthetic is never taken for it."""

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
from phantomgrad_suite.data.graphs import fetch_ppi, ppi, ppi_files
from phantomgrad_suite.data.graphs.fetch_ppi import fetch_ppi as fetch
from phantomgrad_suite.data.graphs.ppi_files import FILES, scaled
from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """PPI is as small as the synthetic graphs."""
    nodes = scaled(PPI_SCALE)
    for module in (ppi, ppi_files, fetch_ppi):
        monkeypatch.setattr(module, "NODES", nodes)


@pytest.fixture
def source(ppi_root: Path, tmp_path: Path, small: None) -> Path:
    """A folder with raw files that call themselves PPI's."""
    raw = tmp_path / "source" / "raw"
    shutil.copytree(ppi_root / "ppi-synthetic" / f"scale{PPI_SCALE}-seed0" / "raw", raw)
    for split in ("train", "valid", "test"):
        rewrite(raw / f"{split}_graph.json", graph={})
    return tmp_path / "source"


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# --- What it refuses -------------------------------------------------------------------------


def test_missing_data_set_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as error:
        PPI(root=str(tmp_path))
    assert str(error.value) == (
        f"PPI lacks train_feats.npy and others in {tmp_path}/ppi/raw: fetch it with `python "
        "scripts/fetch_data.py PPI` (or, without network, add `--from DIR`), or set dataset.root"
    )


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
    ppi_root: Path, tmp_path: Path, small: None
) -> None:
    """Not even under its name, and with its sizes."""
    shutil.copytree(ppi_root / "ppi-synthetic" / f"scale{PPI_SCALE}-seed0", tmp_path / "ppi")
    (tmp_path / "ppi" / "processed" / "fingerprint").unlink()
    with pytest.raises(UserError, match=r"train_graph.json is of ppi-synthetic, not of PPI: del"):
        PPI(root=str(tmp_path))


def save(path: Path, change: Any) -> None:
    np.save(path, change(np.load(path)))


def swap(ids: np.ndarray) -> np.ndarray:
    return np.concatenate([ids[1:], ids[:1]])


DAMAGES: list[tuple[str, Any, str]] = [
    ("valid_feats.npy", lambda p: p.write_bytes(p.read_bytes()[:100]), "no readable array"),
    ("valid_feats.npy", lambda p: save(p, lambda a: a[:, :49]), r"has the shape \[\d+, 49\], exp"),
    ("test_labels.npy", lambda p: save(p, lambda a: a + 1), "labels other than 0 and 1"),
    ("train_graph_id.npy", lambda p: save(p, swap), "nodes of the graphs"),
    ("test_graph.json", lambda p: p.write_text(p.read_text()[:-9]), "no readable graph"),
    ("test_graph.json", lambda p: rewrite(p, links=[]), "no readable graph|no links"),
    ("test_graph.json", lambda p: rewrite(p, nodes=[{"id": 0}]), "other nodes than 0 to"),
    (
        "test_graph.json",
        lambda p: rewrite(p, links=[{"source": 0, "target": 20}]),
        "links nodes of different graphs",
    ),
]


@pytest.mark.parametrize(("file", "damage", "said"), DAMAGES)
def test_damaged_file_is_named_and_installs_nothing(
    source: Path, tmp_path: Path, file: str, damage: Any, said: str
) -> None:
    damage(source / "raw" / file)
    with pytest.raises(UserError, match=rf"^{file} .*({said}).*: nothing was installed$") as error:
        fetch(tmp_path / "data", source)
    assert "\n" not in str(error.value)
    assert list((tmp_path / "data").iterdir()) == []


def test_damage_behind_the_back_of_the_loader_is_found(source: Path, tmp_path: Path) -> None:
    """The loader's own files are of the raw ones as they are now, or made again."""
    target = tmp_path / "data"
    fetch(target, source)
    before = PPI(root=str(target))
    path = target / "ppi" / "raw" / "train_feats.npy"
    save(path, lambda a: a + 1)
    graph, old = PPI(root=str(target))._graphs["train"][0], before._graphs["train"][0]
    assert torch.allclose(graph.features, old.features + 1, atol=1e-6)
    save(path, lambda a: a[:-1])
    with pytest.raises(
        UserError, match=r"train_feats.npy has the shape .*: delete .*/ppi and fetch"
    ):
        PPI(root=str(target))


# --- Fetching --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["raw", "ppi/raw", "."])
def test_data_come_from_a_folder(source: Path, tmp_path: Path, place: str) -> None:
    given = tmp_path / "given"
    (given / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source / "raw", given / place)
    said = fetch(tmp_path / "data", given)
    raw = tmp_path / "data" / "ppi" / "raw"
    nodes = sum(map(sum, ppi.NODES.values()))
    assert said == (
        f"PPI: 24 graphs with {nodes} nodes in {raw} "
        "(nodes of every graph as they should be, no checksums known)"
    )
    facts = PPI(root=str(tmp_path / "data")).facts()
    assert (facts["name"], "reduced" in facts) == ("PPI", False)
    shutil.rmtree(given)
    assert "(already there, nodes" in fetch(tmp_path / "data", given)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["ppi"]


def test_half_a_folder_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    fetch(tmp_path / "data", source)
    (tmp_path / "data" / "ppi" / "raw" / FILES[0]).unlink()
    with pytest.raises(UserError, match=r"holds a part of PPI: delete .*/ppi and fetch it again"):
        fetch(tmp_path / "data", source)


def test_folder_without_the_data_set_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"does not hold PPI: expected train_feats.npy and"):
        fetch(tmp_path / "data", tmp_path)


def test_failed_download_names_the_way_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch_geometric.datasets.PPI.download", download)
    with pytest.raises(MissingDataError, match=r"OSError: no route to host.*use `--from DIR`"):
        fetch(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_data_are_downloaded_by_pyg(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: Any) -> None:
        shutil.copytree(source / "raw", self.raw_dir, dirs_exist_ok=True)

    monkeypatch.setattr("torch_geometric.datasets.PPI.download", download)
    assert "24 graphs" in fetch(tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["ppi"]
