"""Fetching: whole or not at all, never a wrong file, and the exit codes of the script."""

from __future__ import annotations

import runpy
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from torchvision.datasets import CIFAR10

from graph_data import REPOSITORY, write_tu_dataset
from image_data import write_cifar10
from phantomgrad.data import Cifar10
from phantomgrad.data.checksums import known_checksums, sha256
from phantomgrad.data.graphs import fetch_tu as fetch
from phantomgrad.data.graphs.fetch_tu import fetch_tu_dataset
from phantomgrad.data.images import fetch as fetch_images
from phantomgrad.data.images.fetch import fetch_cifar10, fetch_cifar10_jpeg, find_imagenet
from phantomgrad.errors import MissingDataError, UserError

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch_geometric.datasets.TUDataset.download", download)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a data set that has no known checksums."""
    write_tu_dataset(tmp_path / "source", "TOY", graphs=12, seed=0)
    return tmp_path / "source"


@pytest.fixture
def known(source: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, its checksums known."""
    sums = {path.name: sha256(path) for path in (source / "TOY" / "raw").iterdir()}
    monkeypatch.setattr(fetch, "_known", lambda name: sums)
    return source


def test_data_come_from_a_folder(source: Path, tmp_path: Path) -> None:
    said = fetch_tu_dataset("TOY", tmp_path / "data", source)
    raw = tmp_path / "data" / "TUDataset" / "TOY" / "raw"
    assert said == f"TOY: 12 graphs in {raw} (no checksums known)"
    names = {path.name for path in raw.iterdir()}
    assert names == {path.name for path in (source / "TOY" / "raw").iterdir()}


def test_data_may_lie_below_a_folder_of_all_data_sets(source: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    source.rename(tmp_path / "all" / "TUDataset")
    assert "12 graphs" in fetch_tu_dataset("TOY", tmp_path / "data", tmp_path / "all")


def test_second_time_finds_them_there(known: Path, tmp_path: Path) -> None:
    assert "(checksums verified)" in fetch_tu_dataset("TOY", tmp_path / "data", known)
    shutil.rmtree(known)
    said = fetch_tu_dataset("TOY", tmp_path / "data", known)
    assert "(already there, checksums verified)" in said


def damage(raw: Path) -> None:
    path = raw / "TOY_graph_labels.txt"
    path.write_text(path.read_text().replace("-1", "1", 1))


def test_damaged_file_copies_nothing(known: Path, tmp_path: Path) -> None:
    damage(known / "TOY" / "raw")
    with pytest.raises(UserError, match=r"^TOY_graph_labels.txt in .* nothing was copied$"):
        fetch_tu_dataset("TOY", tmp_path / "data", known)
    assert not (tmp_path / "data").exists()


def test_missing_file_copies_nothing(known: Path, tmp_path: Path) -> None:
    (known / "TOY" / "raw" / "TOY_graph_indicator.txt").unlink()
    with pytest.raises(UserError, match=r"TOY_graph_indicator.txt in .* missing or damaged"):
        fetch_tu_dataset("TOY", tmp_path / "data", known)
    assert not (tmp_path / "data").exists()


def test_damage_after_the_copy_is_found(known: Path, tmp_path: Path) -> None:
    fetch_tu_dataset("TOY", tmp_path / "data", known)
    damage(tmp_path / "data" / "TUDataset" / "TOY" / "raw")
    with pytest.raises(UserError, match="delete that folder and fetch it again"):
        fetch_tu_dataset("TOY", tmp_path / "data", known)


def test_interrupted_copy_is_no_data_set(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(src: Path, dst: Path) -> None:
        Path(dst).write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            fetch_tu_dataset("TOY", tmp_path / "data", source)
    assert not (tmp_path / "data" / "TUDataset" / "TOY" / "raw").exists()
    assert "12 graphs" in fetch_tu_dataset("TOY", tmp_path / "data", source)


def test_half_a_folder_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    raw = tmp_path / "data" / "TUDataset" / "TOY" / "raw"
    raw.mkdir(parents=True)
    (raw / "TOY_node_labels.txt").write_text("mine")
    with pytest.raises(UserError, match="delete that folder and fetch it again"):
        fetch_tu_dataset("TOY", tmp_path / "data", source)
    assert (raw / "TOY_node_labels.txt").read_text() == "mine"


def test_folder_without_the_data_set_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"does not hold TOY: expected .*/TOY_A.txt"):
        fetch_tu_dataset("TOY", tmp_path / "data", tmp_path / "nowhere")


def test_failed_download_names_the_way_without_network(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"OSError: no route to host.*use `--from DIR`"):
        fetch_tu_dataset("TOY", tmp_path / "data")


def test_checksums_of_the_paper_data_sets_are_known() -> None:
    for name in fetch.DEFAULT_NAMES:
        files = set(fetch._known(name))
        parts = ("A", "graph_indicator", "graph_labels", "node_labels", "node_attributes")
        assert files == {f"{name}_{part}.txt" for part in parts}


def test_real_data_have_the_known_checksums(tu_root: Path) -> None:
    for name in fetch.DEFAULT_NAMES:
        assert fetch.mismatches(name, tu_root / name / "raw") == []


# --- Images ----------------------------------------------------------------------------------


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small CIFAR-10 whose checksums torchvision knows, as a folder."""
    write_cifar10(tmp_path / "source", monkeypatch)
    return tmp_path / "source"


@pytest.fixture
def cifar_archive(cifar: Path) -> Path:
    """The same as an archive."""
    with tarfile.open(cifar / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(cifar / "cifar-10-batches-py", "cifar-10-batches-py")
    shutil.rmtree(cifar / "cifar-10-batches-py")
    return cifar


@pytest.fixture
def jpeg_archive(jpeg_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small cifar10-jpeg.tar.xz of known checksum and size."""
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "cifar10-jpeg.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for part in ("train", "test"):
            archive.add(jpeg_root / "cifar10-jpeg" / part, part)
    sums = {path.name: sha256(path)}
    monkeypatch.setattr(fetch_images, "known_checksums", lambda: sums)
    monkeypatch.setattr(fetch_images, "_JPEG_IMAGES", {"train": 10, "test": 2})
    return path.parent


@pytest.mark.parametrize("form", ["cifar", "cifar_archive"])
def test_cifar10_comes_from_a_folder_or_an_archive(
    form: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source, target = request.getfixturevalue(form), tmp_path / "data"
    folder = target / "cifar-10-batches-py"
    said = f"CIFAR10: 60000 images in {folder} "
    assert fetch_cifar10(target, source) == f"{said}(checksums verified)"
    shutil.rmtree(source)
    assert fetch_cifar10(target, source) == f"{said}(already there, checksums verified)"
    assert Cifar10(root=str(target)).facts()["train"] == 100
    assert [path.name for path in target.iterdir()] == [folder.name]


def test_cifar10_is_downloaded_by_torchvision(
    cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: CIFAR10) -> None:
        shutil.copytree(cifar / self.base_folder, Path(self.root) / self.base_folder)

    monkeypatch.setattr(CIFAR10, "download", download)
    assert "checksums verified" in fetch_cifar10(tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-py"]


def test_failed_download_of_cifar10_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: CIFAR10) -> None:
        (Path(self.root) / "cifar-10-python.tar.gz").write_text("half")
        raise OSError("no route to host")

    monkeypatch.setattr(CIFAR10, "download", download)
    with pytest.raises(MissingDataError, match=r"OSError: no route to host.*use `--from DIR`"):
        fetch_cifar10(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_damaged_source_of_cifar10_installs_nothing(cifar: Path, tmp_path: Path) -> None:
    (cifar / "cifar-10-batches-py" / "data_batch_2").unlink()
    with pytest.raises(UserError, match=r"^data_batch_2 in .* nothing was installed$"):
        fetch_cifar10(tmp_path / "data", cifar)
    assert list((tmp_path / "data").iterdir()) == []


def test_truncated_archive_installs_nothing(cifar_archive: Path, tmp_path: Path) -> None:
    path = cifar_archive / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(UserError, match=r"cifar-10-python.tar.gz is no whole archive \("):
        fetch_cifar10(tmp_path / "data", cifar_archive)
    assert list((tmp_path / "data").iterdir()) == []


def test_partial_cifar10_is_not_overwritten(cifar: Path, tmp_path: Path) -> None:
    fetch_cifar10(tmp_path / "data", cifar)
    (tmp_path / "data" / "cifar-10-batches-py" / "test_batch").unlink()
    with pytest.raises(UserError, match=r"^test_batch in .* delete that folder and fetch it again"):
        fetch_cifar10(tmp_path / "data", cifar)


def test_source_without_cifar10_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"does not hold CIFAR10: expected .*tar.gz or the"):
        fetch_cifar10(tmp_path / "data", tmp_path)


def test_jpeg_archive_is_unpacked(jpeg_archive: Path, jpeg_root: Path, tmp_path: Path) -> None:
    target = tmp_path / "data"
    said = f"CIFAR10-JPEG: 60000 images in {target / 'cifar10-jpeg'} "
    assert fetch_cifar10_jpeg(target, jpeg_archive) == f"{said}(checksum of the archive verified)"
    assert fetch_cifar10_jpeg(target) == f"{said}(already there, none missing)"
    assert [path.name for path in target.iterdir()] == ["cifar10-jpeg"]
    roots = (str(target), str(jpeg_root))
    first, second = (Cifar10(root=root, name="cifar10-jpeg").facts() for root in roots)
    assert first == second


def test_damaged_jpeg_archive_installs_nothing(jpeg_archive: Path, tmp_path: Path) -> None:
    path = jpeg_archive / "cifar10-jpeg.tar.xz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"is damaged \(its checksum differs\): nothing was"):
        fetch_cifar10_jpeg(tmp_path / "data", jpeg_archive)
    assert not (tmp_path / "data").exists()


def test_interrupted_unpacking_is_no_data_set(
    jpeg_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(archive: Path, folder: Path) -> None:
        (folder / "train").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch_images, "_unpack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch_cifar10_jpeg(tmp_path / "data", jpeg_archive)
    assert list((tmp_path / "data").iterdir()) == []
    (tmp_path / "data" / "cifar10-jpeg.part").mkdir()  # as a killed process leaves it
    assert "verified" in fetch_cifar10_jpeg(tmp_path / "data", jpeg_archive)


def test_missing_jpeg_image_is_counted(jpeg_archive: Path, tmp_path: Path) -> None:
    fetch_cifar10_jpeg(tmp_path / "data", jpeg_archive)
    (tmp_path / "data" / "cifar10-jpeg/train/ship/0003.jpg").unlink()
    with pytest.raises(UserError, match=r"is not whole \(train/ship: 9 images of 10\): delete"):
        fetch_cifar10_jpeg(tmp_path / "data", jpeg_archive)


def test_jpeg_archive_must_be_named_and_there(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no address to download it from: use `--from DIR`"):
        fetch_cifar10_jpeg(tmp_path / "data")
    with pytest.raises(MissingDataError, match=r"does not hold CIFAR10-JPEG: expected .*tar.xz$"):
        fetch_cifar10_jpeg(tmp_path / "data", tmp_path)


def test_imagenet_says_how_to_arrange_it(folder_root: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"data/imagenet/train/<class>/\*.JPEG"):
        find_imagenet(tmp_path / "data")
    said = f"3 classes in {folder_root} (no checksums known)"
    assert find_imagenet(tmp_path, folder_root) == (
        f"ImageNet: 12 training and 5 validation images of {said}"
    )
    (tmp_path / "imagenet").symlink_to(folder_root)
    assert "12 training and 5 validation images" in find_imagenet(tmp_path)


def test_checksum_of_the_jpeg_archive_is_known() -> None:
    assert len(known_checksums()["cifar10-jpeg.tar.xz"]) == 64


# --- The script ------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], int]:
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(REPOSITORY / "scripts" / "fetch_data.py"))["main"]  # type: ignore[no-any-return]


def test_script_fetches_what_is_named(
    script: Callable[[list[str]], int], source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(["TOY", "--from", str(source)]) == 0
    assert "TOY: 12 graphs in data/TUDataset/TOY/raw" in capsys.readouterr().out


def test_script_knows_the_image_data_sets(
    script: Callable[[list[str]], int],
    jpeg_archive: Path,
    folder_root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script(["CIFAR10-JPEG", "--from", str(jpeg_archive)]) == 0
    assert script(["ImageNet", "--from", str(folder_root)]) == 0
    assert script(["CIFAR10", "--from", str(folder_root)]) == 1
    said = capsys.readouterr()
    assert "CIFAR10-JPEG: 60000 images in data/cifar10-jpeg (checksum" in said.out
    assert "ImageNet: 12 training" in said.out
    assert "does not hold CIFAR10: expected" in said.err


def test_script_goes_on_after_a_failure_and_says_so(
    script: Callable[[list[str]], int], source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(["OTHER", "TOY", "--from", str(source)]) == 1
    said = capsys.readouterr()
    assert "does not hold OTHER" in said.err
    assert "TOY: 12 graphs" in said.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["TOY", "--form", "DIR"], "unknown option --form"), (["--from"], "--from needs a folder")],
)
def test_script_refuses_what_it_does_not_know(
    script: Callable[[list[str]], int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    assert script(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
