"""Getting image data sets onto this machine, once, with checksums; never during a run."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phantomgrad_suite.data.checksums import known_checksums, sha256
from phantomgrad_suite.data.images.imagenet import PARTS, open_folder
from phantomgrad_suite.data.images.pixels import CLASSES, damaged_files
from phantomgrad_suite.runs.errors import MissingDataError, UserError

_BATCHES, _ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
_JPEG = "cifar10-jpeg"
_JPEG_IMAGES = {"train": 5000, "test": 1000}  # of each class


def fetch_cifar10(target: Path, source: Path | None = None) -> str:
    """Bring CIFAR-10 to ``target/cifar-10-batches-py``; say what was done.

    Args:
        target: the folder of all data (``paths.data``).
        source: a folder that holds ``cifar-10-python.tar.gz`` or ``cifar-10-batches-py``; without
            one, torchvision downloads the archive.

    Raises:
        MissingDataError: ``source`` does not hold the data set, or the download failed.
        UserError: files are missing or damaged, there or here; nothing was installed.
    """
    folder = target / _BATCHES
    there = folder.is_dir()
    if not there:
        with _staged(folder) as staging:
            if source is None:
                _download_cifar10(staging)
            else:
                _take_cifar10(source, staging)
            _check_cifar10(staging / _BATCHES, "nothing was installed")
            (staging / _BATCHES).replace(folder)
    _check_cifar10(folder, "delete that folder and fetch it again")
    return f"CIFAR10: 60000 images in {folder} ({'already there, ' * there}checksums verified)"


def fetch_cifar10_jpeg(target: Path, source: Path | None = None) -> str:
    """Bring the JPEG copy of CIFAR-10 to ``target/cifar10-jpeg``; say what was done.

    Args:
        target: the folder of all data (``paths.data``).
        source: a folder that holds ``cifar10-jpeg.tar.xz``.

    Raises:
        MissingDataError: ``source`` is not given, or does not hold the archive.
        UserError: the archive is damaged, or images are missing here; nothing was installed.
    """
    folder = target / _JPEG
    there = folder.is_dir()
    if not there:
        archive = _jpeg_archive(source)
        with _staged(folder) as staging:
            _unpack(archive, staging)
            staging.replace(folder)
    few = incomplete_classes(folder)
    if few:
        raise UserError(
            f"{folder} is not whole ({', '.join(few)}): delete that folder and fetch it again"
        )
    checked = "already there, none missing" if there else "checksum of the archive verified"
    return f"CIFAR10-JPEG: 60000 images in {folder} ({checked})"


def incomplete_classes(folder: Path) -> list[str]:
    """Return what is missing of the JPEG copy, in words."""
    found = {
        f"{part}/{name}": (len(list((folder / part / name).glob("*.jpg"))), count)
        for part, count in _JPEG_IMAGES.items()
        for name in CLASSES
    }
    return [f"{name}: {n} images of {count}" for name, (n, count) in found.items() if n != count]


def find_imagenet(target: Path, source: Path | None = None) -> str:
    """Look for ImageNet, which nobody may pass on: say how many images there are.

    Args:
        target: the folder of all data (``paths.data``).
        source: looked into instead of ``target/imagenet``.

    Raises:
        MissingDataError: it is not there; the message says how to arrange it.
        UserError: it is not arranged by classes.
    """
    root = source or target / "imagenet"
    if not any((root / part).is_dir() for part in PARTS):
        raise MissingDataError(
            "ImageNet cannot be downloaded without an account of image-net.org (ILSVRC 2012): "
            f"unpack the training images to {root}/train/<class>/*.JPEG and the validation images "
            f"to {root}/val/<class>/*.JPEG, with the same 1000 class folders (n01440764 ...); "
            "a link to where they are will do"
        )
    train, val = (open_folder(root, part) for part in PARTS)
    return (
        f"ImageNet: {len(train)} training and {len(val)} validation images of "
        f"{len(train.classes)} classes in {root} (no checksums known)"
    )


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``folder``; what is not moved from it to its place is lost."""
    staging = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_cifar10(folder: Path, otherwise: str) -> None:
    wrong = damaged_files(folder)
    if wrong:
        raise UserError(f"{', '.join(wrong)} in {folder} are missing or damaged: {otherwise}")


def _take_cifar10(source: Path, staging: Path) -> None:
    archive, folder = source / _ARCHIVE, source / _BATCHES
    if folder.is_dir():
        shutil.copytree(folder, staging / _BATCHES)
    elif archive.exists():
        _unpack(archive, staging)
    else:
        raise MissingDataError(
            f"{source} does not hold CIFAR10: expected {archive} or the folder {folder}"
        )


def _download_cifar10(staging: Path) -> None:
    from torchvision.datasets import CIFAR10

    try:
        CIFAR10(str(staging), download=True)
    except Exception as error:
        raise MissingDataError(
            f"CIFAR10 could not be downloaded ({type(error).__name__}: {error}); on a machine "
            f"without network, copy {_ARCHIVE} and use `--from DIR`"
        ) from error


def _jpeg_archive(source: Path | None) -> Path:
    """Return the archive in ``source``, its checksum verified."""
    name = f"{_JPEG}.tar.xz"
    if source is None:
        raise MissingDataError(
            f"CIFAR10-JPEG has no address to download it from: use `--from DIR`, where DIR holds "
            f"{name}"
        )
    archive = source / name
    if not archive.exists():
        raise MissingDataError(f"{source} does not hold CIFAR10-JPEG: expected {archive}")
    if sha256(archive) != known_checksums()[name]:
        raise UserError(f"{archive} is damaged (its checksum differs): nothing was installed")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as content:
            if hasattr(tarfile, "data_filter"):
                content.extractall(folder, filter="data")
            else:  # Python before 3.11.4
                content.extractall(folder)
    except (tarfile.TarError, EOFError) as error:
        raise UserError(
            f"{archive} is no whole archive ({type(error).__name__}: {error}): nothing was "
            "installed"
        ) from error
