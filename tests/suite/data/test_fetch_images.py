"""Image data sets are fetched whole, from a folder, an archive or a download, or not at all."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from image_data import write_cifar10
from torchvision.datasets import CIFAR10

from phantomgrad_suite.data import Cifar10
from phantomgrad_suite.data.checksums import known_checksums
from phantomgrad_suite.data.images import fetch as fetch_images
from phantomgrad_suite.data.images.fetch import fetch_cifar10, fetch_cifar10_jpeg, find_imagenet
from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = pytest.mark.usefixtures("float32")


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


@pytest.mark.filterwarnings("ignore:Python 3.14 will, by default, filter:DeprecationWarning")
def test_python_without_filters_unpacks(
    jpeg_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has them since 3.11.4; Debian 12 has 3.11.2."""
    original = tarfile.TarFile.extractall
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: original(self, path))
    assert "checksum" in fetch_cifar10_jpeg(tmp_path / "data", jpeg_archive)


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
