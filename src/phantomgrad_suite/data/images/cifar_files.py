"""The files of CIFAR-10: the original ones, and a copy of the images as JPEG files."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phantomgrad_suite.data.base import missing_data
from phantomgrad_suite.data.cache import cached
from phantomgrad_suite.data.images.base import ImageBatch, open_folder
from phantomgrad_suite.data.sources import sha256, unpack
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_ORIGINAL = "cifar-10-batches-py"
_SOURCES = {
    "cifar10": (_ORIGINAL,),
    "cifar10-jpeg": ("cifar10-jpeg", "cifar10-jpeg.tar.xz"),
}


def find(name: str, root: Path) -> Path:
    """Return the folder or archive of ``cifar10`` or ``cifar10-jpeg`` in ``root``.

    Raises:
        MissingDataError: it is not there.
        UserError: the name is unknown.
    """
    if name not in _SOURCES:
        raise UserError(f"dataset.name must be one of {', '.join(_SOURCES)}, got {name!r}")
    for source in _SOURCES[name]:
        if (root / source).exists():
            return root / source
    raise missing_data(f"{name} is not in {root}", name.upper())


def read(source: Path) -> dict[str, ImageBatch]:
    """Read training and test images from what :func:`find` returns.

    Raises:
        UserError: some of them are missing or damaged.
    """
    if source.name == _ORIGINAL:
        return _read_original(source)
    path = source.with_name("cifar10-jpeg.pt")
    tensors = cached(path, _identity(source), lambda: _decoded(source))
    return {"train": ImageBatch(*tensors[:2]), "test": ImageBatch(*tensors[2:])}


def _read_original(folder: Path) -> dict[str, ImageBatch]:
    from torchvision.datasets import CIFAR10

    try:
        parts = [CIFAR10(str(folder.parent), train=train) for train in (True, False)]
    except RuntimeError as error:  # torchvision verifies checksums
        raise UserError(
            f"files in {folder} are missing or damaged: delete that folder and fetch it again with "
            "`python scripts/fetch_data.py CIFAR10`"
        ) from error
    batches = [ImageBatch(*_tensors(part.data, part.targets)) for part in parts]
    return dict(zip(("train", "test"), batches, strict=True))


def _identity(source: Path) -> str:
    """Return a hash of the archive, or of the names, sizes and times of the files."""
    if source.is_file():
        return sha256(source)
    listing = hashlib.sha256()
    for folder in sorted(source.glob("*/*/")):
        listing.update(f"{folder.relative_to(source)}\n".encode())
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            stat = entry.stat()
            listing.update(f"{entry.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return listing.hexdigest()


def _decoded(source: Path) -> list[Tensor]:
    """Return images and labels of the training part, then of the test part, sorted by name."""
    if source.is_file():
        with tempfile.TemporaryDirectory() as folder:
            unpack(source, Path(folder))
            return _decoded(Path(folder))
    log.info("decoding the images of %s, once", source)
    tensors: list[Tensor] = []
    for part in ("train", "test"):
        images = open_folder(source, part, "CIFAR10-JPEG")
        counts = Counter(images.classes[label] for label in images.targets)
        fewest = min(CLASSES, key=lambda name: counts[name])
        if counts[fewest] != max(counts.values()):
            raise UserError(
                f"{source / part} has only {counts[fewest]} images of class {fewest}: delete "
                f"{source} and fetch it again with `python scripts/fetch_data.py CIFAR10-JPEG`"
            )
        tensors += _tensors(np.stack([_image(path) for path, _ in images.samples]), images.targets)
    return tensors


def _image(path: str) -> np.ndarray:
    from torchvision.datasets.folder import pil_loader

    try:
        pixels = np.asarray(pil_loader(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read as an image ({error})") from error
    if pixels.shape != (32, 32, 3):
        height, width, _ = pixels.shape
        raise UserError(f"{path} must be 32 x 32 pixels, is {height} x {width}")
    return pixels


def _tensors(images: np.ndarray, labels: list[int]) -> tuple[Tensor, Tensor]:
    """Return bytes, ``(N, 32, 32, 3)``, and labels as tensors, channels first."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)
