"""Fetching: from a folder, an archive or a download; verified, and whole or not at all."""

import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from graph_data import REPOSITORY, write_tu_dataset
from image_data import write_cifar10
from text_data import write_texts

from phantomgrad_suite.data import WikiText103
from phantomgrad_suite.data import fetch as fetching
from phantomgrad_suite.data.fetch import fetch
from phantomgrad_suite.data.graphs.ppi_synthetic import write_ppi
from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = pytest.mark.usefixtures("float32")
TEXTS = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
PLACES = {
    "TOY": "TUDataset/TOY/raw",
    "PPI": "ppi/raw",
    "CIFAR10": "cifar-10-batches-py",
    "wikitext103": "wikitext-103",
}
CLASSES = {
    "TOY": "torch_geometric.datasets.TUDataset",
    "PPI": "torch_geometric.datasets.PPI",
    "CIFAR10": "torchvision.datasets.CIFAR10",
}


@pytest.fixture
def source(tmp_path, small_ppi, folder_root, monkeypatch):
    """A folder with a small edition of every data set."""
    folder = tmp_path / "source"
    write_tu_dataset(folder / "TUDataset", "TOY", graphs=12, seed=0)
    write_ppi(folder / "ppi" / "raw")
    write_cifar10(folder, monkeypatch)
    write_texts(folder / "wikitext-103")
    texts = [(folder / "wikitext-103" / file).read_text() for file in TEXTS]
    tokens = [len(text.split()) + text.count("\n") for text in texts]
    monkeypatch.setattr(fetching, "TOKENS", dict(zip(fetching.TOKENS, tokens, strict=True)))
    return folder


@pytest.fixture
def target(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("TOY", "12 graphs"),
        ("PPI", r"24 graphs with \d+ nodes"),
        ("CIFAR10", "100 training and 20 test images"),
        ("wikitext103", "texts of 101 words"),
    ],
)
def test_data_come_from_a_folder(source, target, name, found):
    """The second call finds them installed, and verifies them again."""
    message = fetch(name, target, source)
    assert re.fullmatch(f"{name}: {found} in {target / PLACES[name]}", message)
    shutil.rmtree(source)
    assert fetch(name, target, source) == f"{message} (already there)"
    assert not list(target.glob(".fetch-*"))


@pytest.mark.parametrize("name", CLASSES)
def test_data_are_downloaded_by_their_library(source, target, name, monkeypatch):
    places = {"TOY": "TOY/raw", "PPI": "raw", "CIFAR10": "cifar-10-batches-py"}

    def download(self):
        folder = Path(self.root) / places[name]
        shutil.copytree(source / PLACES[name], folder, dirs_exist_ok=True)

    monkeypatch.setattr(f"{CLASSES[name]}.download", download)
    assert fetch(name, target).startswith(f"{name}: ")
    assert not list(target.glob(".fetch-*"))


def test_texts_come_from_the_hub(source, target, tmp_path, monkeypatch):
    """They have the same tokens in the same lines as the files, and so give the same numbers."""
    asked = []

    def load_dataset(*names):
        asked.append(names)
        lines = [(source / "wikitext-103" / file).read_text().splitlines() for file in TEXTS]
        parts = zip(("train", "validation", "test"), lines, strict=True)
        # As the hub has them: a row for each line, blank ones without their white space.
        return {part: {"text": [s if s.strip() else "" for s in rows]} for part, rows in parts}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    fetch("WikiText103", target)
    fetch("WikiText103", tmp_path / "files", source)
    assert asked == [("Salesforce/wikitext", "wikitext-103-v1")]
    a, b = (WikiText103(root=str(root)).facts() for root in (target, tmp_path / "files"))
    assert a == b
    assert "reduced" not in a


def test_failed_download_leaves_nothing_and_names_the_way_without_network(target, monkeypatch):
    download = Mock(side_effect=OSError("no route to host"))
    monkeypatch.setattr(f"{CLASSES['PPI']}.download", download)
    with pytest.raises(
        MissingDataError, match=r"OSError: no route to host.*TU data sets.*use `--from DIR`"
    ):
        fetch("PPI", target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "file", "reason"),
    [
        ("TOY", "TOY_graph_labels.txt", "TOY lacks TOY_graph_labels.txt in"),
        ("PPI", "test_feats.npy", "PPI lacks test_feats.npy in"),
        ("CIFAR10", "data_batch_2", "are missing or damaged"),
        ("wikitext103", "wiki.test.tokens", r"lacks .*wiki\.test\.tokens"),
    ],
)
def test_incomplete_data_are_not_installed(source, target, name, file, reason):
    (source / PLACES[name] / file).unlink()
    with pytest.raises(UserError, match=f"{reason}.*: nothing was installed$"):
        fetch(name, target, source)
    assert list(target.iterdir()) == []


def test_imagenet_is_explained(target):
    with pytest.raises(MissingDataError, match=r"train/<class>/\*.JPEG and val/<class>/\*.JPEG"):
        fetch("ImageNet", target)


def test_script_continues_after_a_failure(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(REPOSITORY / "scripts" / "fetch_data.py"))["main"]
    assert script(["OTHER", "TOY", "--from", str(source)]) == 1
    printed = capsys.readouterr()
    assert "does not contain OTHER" in printed.err
    assert "TOY: 12 graphs in data/TUDataset/TOY/raw" in printed.out
    assert script(["TOY"]) == 0


def test_embedded_data_are_not_fetched(target):
    assert fetch("COX2", target) == "COX2: comes with the package"
    assert not target.exists()
