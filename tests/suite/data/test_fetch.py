"""Fetching: from a folder, an archive or a download; verified, and whole or not at all."""

import re
import runpy
import shutil
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from graph_data import REPOSITORY, write_tu_dataset
from image_data import write_cifar10
from text_data import write_texts

from phantomgrad_suite.data import WikiText103, sources
from phantomgrad_suite.data import fetch as fetching
from phantomgrad_suite.data.fetch import fetch
from phantomgrad_suite.data.graphs.ppi import write_ppi
from phantomgrad_suite.data.sources import known_checksums, sha256
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
    """A folder with a small edition of every data set; the checksums of TOY's files are known."""
    folder = tmp_path / "source"
    raw = write_tu_dataset(folder / "TUDataset", "TOY", graphs=12, seed=0)
    write_ppi(folder / "ppi" / "raw")
    write_cifar10(folder, monkeypatch)
    write_texts(folder / "wikitext-103")
    sums = {path.name: sha256(path) for path in raw.iterdir()}
    known = lambda place="": sums if "TOY" in place else {}  # noqa: E731
    monkeypatch.setattr(sources, "known_checksums", known)
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


@pytest.mark.parametrize("name", PLACES)
def test_failed_download_leaves_nothing_and_names_the_way_without_network(
    target, name, monkeypatch
):
    download = Mock(side_effect=OSError("no route to host"))
    if name in CLASSES:
        monkeypatch.setattr(f"{CLASSES[name]}.download", download)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=download))
    with pytest.raises(MissingDataError, match=r"OSError: no route to host.*use `--from DIR`"):
        fetch(name, target)
    assert list(target.iterdir()) == []


def flip(path):
    path.write_text(path.read_text().replace("-1", "1", 1))


@pytest.mark.parametrize(
    ("name", "file", "damage", "reason"),
    [
        ("TOY", "TOY_graph_labels.txt", flip, "^TOY_graph_labels.txt in .* altered"),
        ("TOY", "TOY_node_labels.txt", Path.unlink, "^TOY_node_labels.txt in .* missing"),
        ("PPI", "valid_feats.npy", lambda p: p.write_bytes(b"x"), "cannot be read"),
        ("PPI", "valid_feats.npy", Path.unlink, "lacks valid_feats.npy"),
        ("CIFAR10", "data_batch_2", Path.unlink, "are missing or damaged"),
        ("wikitext103", "wiki.test.tokens", lambda p: p.write_text("w1\n"), "2 tokens"),
        ("wikitext103", "wiki.train.tokens", Path.unlink, "lacks .*wiki.train"),
    ],
)
def test_damage_is_found_and_repaired(source, target, caplog, name, file, damage, reason):
    """Nothing is installed from a damaged source; damaged files are replaced from an intact one."""
    place = PLACES[name]
    copy = shutil.copytree(source, source.with_name("copy"))
    damage(source / place / file)
    with pytest.raises(UserError, match=rf"{reason}.*: nothing was installed$") as error:
        fetch(name, target, source)
    assert "\n" not in str(error.value)
    assert ".fetch-" not in str(error.value)
    assert list(target.iterdir()) == []
    intact = fetch(name, target, copy)
    damage(target / place / file)
    with pytest.raises(UserError, match=r": nothing was installed$"):
        fetch(name, target, source)
    assert fetch(name, target, copy) == intact
    assert re.search(f"{reason}.*: fetching it again$", caplog.messages[-1])
    assert (target / place / file).read_bytes() == (copy / place / file).read_bytes()
    assert (target / f"{place}.damaged").exists()


@pytest.mark.parametrize("place", ["TUDataset/TOY", "TOY"])
def test_official_archive_of_tu_is_a_source(source, target, place):
    unpacked = source.with_name("unpacked") / place
    shutil.copytree(source / "TUDataset" / "TOY" / "raw", unpacked)
    assert "12 graphs" in fetch("TOY", target, source.with_name("unpacked"))


def test_interrupted_copy_installs_nothing(source, target, monkeypatch):
    def full(src, dst):
        Path(dst).write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            fetch("TOY", target, source)
    assert list(target.iterdir()) == []
    assert "12 graphs" in fetch("TOY", target, source)


@pytest.mark.parametrize("name", [*PLACES])
def test_folder_without_the_data_set(target, tmp_path, name):
    with pytest.raises(MissingDataError, match=rf"does not contain {name}: expected {tmp_path}"):
        fetch(name, target, tmp_path / "nowhere")


@pytest.fixture
def cifar10_archive(source, monkeypatch):
    """Packs what a function adds to an archive, whose checksum is then the known one."""

    def pack(add):
        path = source / "cifar-10-python.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            add(archive)
        shutil.rmtree(source / "cifar-10-batches-py")
        sums = {path.name: sha256(path)}
        monkeypatch.setattr(fetching, "known_checksums", lambda: sums)
        return path

    return pack


def test_cifar10_is_unpacked(source, target, cifar10_archive):
    files = source / "cifar-10-batches-py"
    path = cifar10_archive(lambda archive: archive.add(files, files.name))
    content = path.read_bytes()
    path.write_bytes(content[:9000])
    with pytest.raises(UserError, match=r"cifar-10-python.tar.gz is damaged or another file of"):
        fetch("CIFAR10", target, source)
    assert list(target.iterdir()) == []
    path.write_bytes(content)
    assert "100 training and 20 test images" in fetch("CIFAR10", target, source)


def test_archive_without_the_known_checksum_is_not_unpacked(source, target, monkeypatch):
    shutil.rmtree(source / "cifar-10-batches-py")
    with tarfile.open(source / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(source / "TUDataset", "cifar-10-batches-py")
    monkeypatch.setattr(tarfile, "open", lambda path: pytest.fail("opened"))
    with pytest.raises(UserError, match=r"is damaged or another file of this name \(its checksum"):
        fetch("CIFAR10", target, source)


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize(
    "kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]
)
@pytest.mark.parametrize(
    "name", ["../../../evil", "{}/evil", "cifar-10-batches-py/../../evil", "a"]
)
def test_no_member_leaves_the_folder(
    source, target, cifar10_archive, monkeypatch, filters, kind, name
):
    """Not even on a Python whose ``tarfile`` has no filters, in an archive of known checksum."""
    member = tarfile.TarInfo(name.format(source.parent))
    member.type, member.linkname = kind, str(source.parent / "elsewhere")
    files = source / "cifar-10-batches-py"

    def add(archive):
        archive.add(files, files.name)
        archive.addfile(member)

    cifar10_archive(add)
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter")
    if name == "a" and kind in (tarfile.REGTYPE, tarfile.DIRTYPE):
        fetch("CIFAR10", target, source)
    else:
        with pytest.raises(UserError, match=rf"{member.name}' is no file or folder within it\)$"):
            fetch("CIFAR10", target, source)
        assert list(target.iterdir()) == []
    assert {path.name for path in source.parent.iterdir()} == {"source", "data"}


def test_checksums_are_known(tu_root):
    # Keras has the same one.
    assert known_checksums()["cifar-10-python.tar.gz"].startswith("6d958be07457780")
    for name in ("COX2", "PROTEINS"):
        known = known_checksums(f"TUDataset/{name}/raw")
        parts = ("A", "graph_indicator", "graph_labels", "node_labels", "node_attributes")
        assert set(known) == {f"{name}_{part}.txt" for part in parts}
        assert {file: sha256(tu_root / name / "raw" / file) for file in known} == known


def test_script_continues_after_a_failure(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(REPOSITORY / "scripts" / "fetch_data.py"))["main"]
    assert script(["OTHER", "TOY", "--from", str(source)]) == 1
    printed = capsys.readouterr()
    assert "does not contain OTHER" in printed.err
    assert "TOY: 12 graphs in data/TUDataset/TOY/raw" in printed.out
    assert script(["TOY"]) == 0
