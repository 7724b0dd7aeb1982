"""What ImageNet refuses: folders that are no classes, unreadable images, bad arguments."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from data.imagenet import fit, small
from image_data import write_image, write_image_folder

from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


@pytest.mark.parametrize("part", ["train", "val"])
def test_missing_folder_names_the_command(folder_copy: Path, part: str) -> None:
    shutil.rmtree(folder_copy / part)
    with pytest.raises(MissingDataError, match=rf"holds no folder {part}: .* ImageNet` says how"):
        small(folder_copy)


def test_flat_validation_images_are_said(folder_copy: Path) -> None:
    """As the archive of ImageNet holds them."""
    for path in (folder_copy / "val").glob("*/*"):
        path.rename(folder_copy / "val" / f"{path.parent.name}_{path.name}")
    for folder in (folder_copy / "val").glob("*/"):
        folder.rmdir()
    with pytest.raises(UserError, match=r"val must hold one folder of images for each class \("):
        small(folder_copy)


def test_empty_class_is_said(folder_copy: Path) -> None:
    for path in (folder_copy / "train/n00000001").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"for each class \(.*n00000001"):
        small(folder_copy)


def test_one_class_is_refused(tmp_path: Path) -> None:
    write_image_folder(tmp_path, classes=1)
    with pytest.raises(UserError, match="train must hold at least two classes, holds 1"):
        small(tmp_path)


def test_different_classes_are_refused(folder_copy: Path) -> None:
    shutil.rmtree(folder_copy / "val/n00000002")
    with pytest.raises(UserError, match="same classes in train and val: n00000002 in one of them"):
        small(folder_copy)


@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_image_is_one_sentence(folder_copy: Path, workers: int) -> None:
    path = folder_copy / "train/n00000001/0002.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError) as error:
        fit(small(folder_copy, workers=workers), 1)
    assert str(error.value).startswith(f"{path} is no readable image (")
    assert "Traceback" not in str(error.value)


def test_image_of_no_format_is_one_sentence(folder_copy: Path) -> None:
    write_image(folder_copy / "val/n00000000/0000.JPEG", np.random.default_rng(0), 50, 50)
    (folder_copy / "val/n00000000/0001.JPEG").write_text("not an image")
    with pytest.raises(UserError, match=r"0001.JPEG is no readable image"):
        fit(small(folder_copy), 1)


def test_unknown_protocol_is_refused(folder_root: Path) -> None:
    with pytest.raises(UserError, match="must be 'mdeq' or 'phantom', got 'dali'"):
        small(folder_root, protocol="dali")


@pytest.mark.parametrize(
    ("name", "least"),
    [("batch_size", 1), ("test_batch_size", 1), ("workers", 0), ("validation", 0), ("seed", 0)],
)
def test_too_small_arguments_are_refused(folder_root: Path, name: str, least: int) -> None:
    with pytest.raises(ValueError, match=rf"dataset\.{name} must be at least {least}, got -1"):
        small(folder_root, **{name: -1})
