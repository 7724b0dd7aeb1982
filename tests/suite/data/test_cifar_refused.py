"""What CIFAR-10 refuses: missing and damaged files, and arguments that leave no data."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from data.cifar import Jpeg, ready
from image_data import write_image

from phantomgrad_suite.data import Cifar10
from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]


def test_missing_data_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as error:
        Cifar10(root=str(tmp_path))
    assert str(error.value) == (
        f"CIFAR-10 is not in {tmp_path}: fetch it with `python scripts/fetch_data.py CIFAR10` "
        "(or, without network, add `--from DIR`), or set dataset.root"
    )
    with pytest.raises(MissingDataError, match=r"^cifar10-jpeg is not in .* CIFAR10-JPEG --from"):
        Jpeg(root=str(tmp_path))


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_damaged_original_file_is_named(cifar_root: Path, damage: str) -> None:
    path = cifar_root / "cifar-10-batches-py" / "data_batch_3"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"^data_batch_3 in .* are missing or damaged: delete that"):
        ready(cifar_root, "cifar10")


def test_unreadable_image_is_named(jpeg_copy: Path) -> None:
    path = jpeg_copy / "cifar10-jpeg/test/dog/0001.jpg"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UserError, match=r"cifar10-jpeg/test/dog/0001.jpg is no readable image \("):
        ready(jpeg_copy)
    assert not (jpeg_copy / "cifar10-jpeg.pt").exists()


def test_image_of_another_size_is_named(jpeg_copy: Path) -> None:
    write_image(jpeg_copy / "cifar10-jpeg/train/dog/0001.jpg", np.random.default_rng(0), 48, 32)
    with pytest.raises(UserError, match=r"dog/0001.jpg must be 32 x 32 pixels, is 32 x 48$"):
        ready(jpeg_copy)


@pytest.mark.parametrize("lost", ["frog/0009.jpg", "frog"])
def test_missing_images_are_counted(jpeg_copy: Path, lost: str) -> None:
    path = jpeg_copy / "cifar10-jpeg/train" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    left = 9 if lost.endswith(".jpg") else 0
    with pytest.raises(UserError, match=rf"train/frog holds {left} images, other classes 10"):
        ready(jpeg_copy)


def test_truncated_archive_is_said(jpeg_copy: Path) -> None:
    with tarfile.open(jpeg_copy / "cifar10-jpeg.tar.xz", "w:xz") as archive:
        archive.add(jpeg_copy / "cifar10-jpeg/train", "train")
    shutil.rmtree(jpeg_copy / "cifar10-jpeg")
    path = jpeg_copy / "cifar10-jpeg.tar.xz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"cifar10-jpeg.tar.xz is no whole archive \("):
        ready(jpeg_copy)


def test_unknown_name_is_refused(jpeg_root: Path) -> None:
    with pytest.raises(UserError, match="one of cifar10, cifar10-jpeg, got 'cifar100'"):
        Cifar10(root=str(jpeg_root), name="cifar100")


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("batch_size", 0, 1),
        ("test_batch_size", 0, 1),
        ("validation", -1, 0),
        ("subset", 0, 1),
        ("seed", -1, 0),
    ],
)
def test_too_small_arguments_are_refused(
    jpeg_root: Path, name: str, value: int, least: int
) -> None:
    with pytest.raises(ValueError, match=rf"dataset\.{name} must be at least {least}, got {value}"):
        Jpeg(root=str(jpeg_root), **{name: value})


@pytest.mark.parametrize("count", [9, 91])
def test_validation_part_without_every_class_is_refused(jpeg_root: Path, count: int) -> None:
    with pytest.raises(UserError, match=rf"dataset.validation must lie in \[10, 90\] .* {count}"):
        ready(jpeg_root, validation=count)


def test_subset_larger_than_the_classes_is_refused(jpeg_root: Path) -> None:
    with pytest.raises(UserError, match=r"dataset\.subset must be at most 10, got 11"):
        ready(jpeg_root, subset=11)
