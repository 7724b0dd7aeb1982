"""The pixels of CIFAR-10: from its original files, or from a copy of it as JPEG files."""

from __future__ import annotations

import hashlib
import io
import logging
import lzma
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from phantomgrad_suite.data.cache import cached
from phantomgrad_suite.data.images.base import ImageBatch
from phantomgrad_suite.runs.errors import MissingDataError, UserError

log = logging.getLogger(__name__)

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
PARTS = ("train", "test")
_SIZE = 32
_JPEG = re.compile(rf"({'|'.join(PARTS)})/({'|'.join(CLASSES)})/[^/.][^/]*\.jpg")


class Pixels(NamedTuple):
    """Training and test images, ``(N, 3, 32, 32)`` bytes, with labels, ``(N,)``."""

    train: ImageBatch
    test: ImageBatch


def load_cifar10(root: Path) -> Pixels:
    """Read ``root/cifar-10-batches-py`` by torchvision, which verifies the checksums.

    Raises:
        MissingDataError: the folder is not there.
        UserError: some of its files are missing or damaged.
    """
    from torchvision.datasets import CIFAR10

    folder = cifar10_source(root)
    try:
        parts = [CIFAR10(str(root), train=part == "train") for part in PARTS]
    except RuntimeError as error:
        raise UserError(
            f"{', '.join(damaged_files(folder))} in {folder} are missing or damaged: delete that "
            "folder and fetch it again with `python scripts/fetch_data.py CIFAR10`"
        ) from error
    return Pixels(*(_batch(part.data, part.targets) for part in parts))


def cifar10_source(root: Path) -> Path:
    """Return the folder that holds the original files.

    Raises:
        MissingDataError: it is not there.
    """
    from torchvision.datasets import CIFAR10

    folder = root / str(CIFAR10.base_folder)
    if folder.is_dir():
        return folder
    raise MissingDataError(
        f"CIFAR-10 is not in {root}: fetch it with `python scripts/fetch_data.py CIFAR10` "
        "(or, without network, add `--from DIR`), or set dataset.root"
    )


def damaged_files(folder: Path) -> list[str]:
    """Return the files of CIFAR-10 that ``folder`` lacks, or whose checksum differs."""
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import check_integrity

    known = [*CIFAR10.train_list, *CIFAR10.test_list]
    known.append([CIFAR10.meta["filename"], CIFAR10.meta["md5"]])
    return [name for name, md5 in known if not check_integrity(str(folder / name), md5)]


def load_cifar10_jpeg(root: Path) -> Pixels:
    """Read ``root/cifar10-jpeg/{train,test}/<class>/*.jpg``, or ``root/cifar10-jpeg.tar.xz``.

    The decoded images are kept in ``root/cifar10-jpeg.pt``.

    Raises:
        MissingDataError: neither is there.
        UserError: an image is missing, unreadable or of another size.
    """
    source = jpeg_source(root)
    tensors = cached(root / "cifar10-jpeg.pt", _identity(source), lambda: _decoded(source))
    return Pixels(ImageBatch(*tensors[:2]), ImageBatch(*tensors[2:]))


def jpeg_source(root: Path) -> Path:
    """Return the folder or the archive that holds the JPEG files.

    Raises:
        MissingDataError: neither is there.
    """
    for source in (root / "cifar10-jpeg", root / "cifar10-jpeg.tar.xz"):
        if source.exists():
            return source
    raise MissingDataError(
        f"cifar10-jpeg is not in {root}: unpack it with `python scripts/fetch_data.py "
        "CIFAR10-JPEG --from DIR`, where DIR holds cifar10-jpeg.tar.xz, or set dataset.root"
    )


def _identity(source: Path) -> str:
    """Return a hash of the archive, or of the names, sizes and times of the files."""
    if source.is_file():
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    listing = hashlib.sha256()
    for folder in sorted(source.glob("*/*/")):
        listing.update(f"{folder.relative_to(source)}\n".encode())
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            about = entry.stat()
            listing.update(f"{entry.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return listing.hexdigest()


def _decoded(source: Path) -> list[Tensor]:
    """Return images and labels of the training part, then of the test part, in order of names."""
    log.info("decoding the images of %s, once", source)
    files = dict(_folder(source) if source.is_dir() else _archive(source))
    tensors: list[Tensor] = []
    for part in PARTS:
        names = sorted(name for name in files if name.startswith(f"{part}/"))
        labels = [CLASSES.index(name.split("/")[1]) for name in names]
        _check_counts(source, part, labels)
        images = np.stack([_image(source, name, files[name]) for name in names])
        tensors += _batch(images, labels)
    return tensors


def _folder(source: Path) -> Iterator[tuple[str, bytes]]:
    for path in source.glob("*/*/*.jpg"):
        name = path.relative_to(source).as_posix()
        if _JPEG.fullmatch(name):
            yield name, path.read_bytes()


def _archive(source: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(source, "r|*") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                file = archive.extractfile(member) if _JPEG.fullmatch(name) else None
                if file is not None:
                    yield name, file.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise UserError(
            f"{source} is no whole archive ({type(error).__name__}: {error}): copy it again"
        ) from error


def _check_counts(source: Path, part: str, labels: list[int]) -> None:
    counts = np.bincount(labels, minlength=len(CLASSES))
    if counts.min() < counts.max() or not labels:
        few = CLASSES[int(counts.argmin())]
        raise UserError(
            f"{source} is not whole: {part}/{few} holds {counts.min()} images, other classes "
            f"{counts.max()}; delete what is there and unpack it again"
        )


def _image(source: Path, name: str, content: bytes) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            pixels = np.asarray(image.convert("RGB"))
    except OSError as error:
        raise UserError(f"{source}/{name} is no readable image ({error})") from error
    if pixels.shape != (_SIZE, _SIZE, 3):
        height, width, _ = pixels.shape
        raise UserError(f"{source}/{name} must be 32 x 32 pixels, is {height} x {width}")
    return pixels


def _batch(images: np.ndarray, labels: list[int]) -> ImageBatch:
    """Return ``(N, 32, 32, 3)`` bytes and labels as tensors, channels first."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return ImageBatch(pixels, torch.tensor(labels))
