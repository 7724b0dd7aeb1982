"""Fingerprints: of the labels in use, known before a run is set up; data of published records."""

import numpy as np
import pytest
from graph_data import REPOSITORY, write_tu_dataset
from hydra.utils import instantiate
from image_data import write_image_folder
from text_data import write_texts

from phantomgrad_suite.data import PPI, GraphFolds, ImageNet, WikiText103
from phantomgrad_suite.data.graphs.ppi_synthetic import write_ppi
from phantomgrad_suite.data.images.cifar import THUMBNAILS
from phantomgrad_suite.data.sources import sha256
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.records import Record

pytestmark = pytest.mark.usefixtures("float32")


def flip_label(path):
    labels = np.load(path)
    labels[0, 0] = 1 - labels[0, 0]
    np.save(path, labels)


KINDS = {
    "TU": (
        lambda root: write_tu_dataset(root, "TOY", graphs=20, seed=0),
        lambda root: GraphFolds(name="TOY", root=str(root), folds=2),
        lambda root: root / "TOY" / "raw" / "TOY_graph_labels.txt",
        lambda path: path.write_text(path.read_text().replace("-1", "1", 1)),
    ),
    "PPI": (
        lambda root: write_ppi(root / "ppi" / "raw"),
        lambda root: PPI(root=str(root)),
        lambda root: root / "ppi" / "raw" / "test_labels.npy",
        flip_label,
    ),
    "ImageNet": (
        write_image_folder,
        lambda root: ImageNet(root=str(root)),
        lambda root: root / "val" / "n00000000",
        lambda folder: (folder / "0000.JPEG").rename(folder.parent / "n00000001" / "0009.JPEG"),
    ),
    "WikiText103": (
        lambda root: write_texts(root / "wikitext-103"),
        lambda root: WikiText103(root=str(root)),
        lambda root: root / "wikitext-103" / "wiki.test.tokens",
        lambda path: path.write_text(path.read_text().replace("w7", "w8", 1)),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fingerprint_is_that_of_the_labels_in_use(tmp_path, small_ppi, kind):
    """It needs no set-up, changes with a label, and not because a file changes after reading."""
    write, load, place, change = KINDS[kind]
    write(tmp_path)
    data, same = load(tmp_path), load(tmp_path)
    before = data.facts()["fingerprint"]
    assert same.facts()["fingerprint"] == before
    change(place(tmp_path))
    assert data.facts()["fingerprint"] == before
    assert load(tmp_path).facts()["fingerprint"] != before


@pytest.mark.parametrize(
    "row",
    [
        "digits/implicit",
        "chains/implicit",
        "cpu/table1/implicit",
        "cpu/table3/wikitext103_postln_implicit",
        "cpu/table4/ppi_implicit",
        "table4/cox2_implicit",
        "table4/honest/proteins_implicit",
    ],
)
def test_published_records_have_the_data_of_today(row):
    """All of these data are made, or come with the package."""
    record = Archive(REPOSITORY / "results" / "records").of(Record, row)[0]
    settings = {"root": "nowhere"} if "table" in row else {}
    data = instantiate(record.config["dataset"], **settings)
    known = {name: fact for name, fact in record.data.items() if name != "spectral_radius"}
    assert known.items() <= data.facts().items()
    assert ("validation" in data.evaluation_sets) == (record.result.selected is not None)


def test_embedded_files_are_the_known_ones():
    folder = THUMBNAILS.parent
    known = (folder.parent / "SHA256SUMS").read_text().splitlines()
    files = sorted(path for path in folder.iterdir() if path.name != "README.md")
    assert known == [f"{sha256(path)}  embedded/{path.name}" for path in files]
