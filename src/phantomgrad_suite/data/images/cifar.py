"""CIFAR-10, original or as thumbnails, in memory; augmented on the device."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from phantomgrad.checks import check_choice
from phantomgrad_suite.checkpoint.loaders import Shuffled
from phantomgrad_suite.data.base import Share, missing_data
from phantomgrad_suite.data.folds import held_out
from phantomgrad_suite.data.images.base import ImageBatch, ImageData, ImageSet
from phantomgrad_suite.data.sources import digest, embedded_file
from phantomgrad_suite.runs.errors import UserError

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_ORIGINAL, _FOLDER = "cifar10", "cifar-10-batches-py"
_THUMBNAILS = "cifar10-8x8"
THUMBNAILS = embedded_file("cifar10_8x8.webp")


@dataclass(kw_only=True, eq=False)
class Cifar10(ImageData):
    """50,000 training and 10,000 test images of ten classes (Krizhevsky, 2009), ``(3, 32, 32)``.

    With ``name="cifar10-8x8"`` and ``resolution=8`` or 4 they are embedded thumbnails: the first
    1,000 training images of each class, and all test images. In a distributed run each process
    takes its own part of every epoch.
    """

    mean = (0.4914, 0.4822, 0.4465)
    deviation = (0.2023, 0.1994, 0.2010)
    side = 32
    classes = all_classes = len(CLASSES)

    root: str  # holds cifar-10-batches-py
    name: str = _ORIGINAL  # or cifar10-8x8
    batch_size: int = 128  # images of one process; the last batch may be smaller
    test_batch_size: int = 128
    augment: bool = False  # crop at random in a black frame of 1/8; mirror with probability 1/2
    validation: int = 0  # training images held out, stratified; 0 in the papers
    subset: int | None = None  # training images of each class, the first ones
    resolution: int = 32  # pixels; fewer are averages over areas of the 32 x 32
    seed: int = 42  # of the validation part

    def __post_init__(self) -> None:
        super().__init__()
        self.check_settings(1, "batch_size", "test_batch_size", "subset")
        self.check_settings(0, "validation", "seed")
        embedded = self.name == _THUMBNAILS
        check_choice("dataset.name", self.name, (_ORIGINAL, _THUMBNAILS))
        check_choice("dataset.resolution", self.resolution, (4, 8) if embedded else (4, 8, 16, 32))
        if not embedded and not Path(self.root, _FOLDER).exists():
            raise missing_data(f"{self.name} is not in {self.root}", self.name.upper())
        self.evaluation_sets = ("test", "validation") if self.validation else ("test",)

    @cached_property
    def pixels(self) -> dict[str, ImageBatch]:
        original = self.name == _ORIGINAL
        tensors = _read_original(self.root) if original else read_thumbnails()
        train, test = ImageBatch(*tensors[:2]), ImageBatch(*tensors[2:])
        if self.subset is not None:
            train = _first_of_each_class(train, self.subset)
        return {"train": self._averaged(train), "test": self._averaged(test)}

    def _averaged(self, batch: ImageBatch) -> ImageBatch:
        return ImageBatch(averaged(batch.images, self.resolution), batch.labels)

    def facts(self) -> dict[str, Any]:
        train, test = self.pixels["train"], self.pixels["test"]
        facts = {
            "name": self.name,
            "fingerprint": f"sha256:{digest([*train, *test])}",
            "train": len(train.labels) - self.validation,
            "validation": self.validation,
            "test": len(test.labels),
        }
        reductions = []
        if subset := self.subset or (1000 if self.name == _THUMBNAILS else None):
            reductions.append(f"the first {subset} training images of each class")
        if self.resolution < self.side:
            reductions.append(f"{self.resolution} x {self.resolution} pixels")
        return {**facts, "reduced": ", ".join(reductions)} if reductions else facts

    def setup(self, stage: str | None = None) -> None:
        parts = dict(self.pixels)
        if self.validation:
            kept, held = held_out(parts["train"].labels, self.validation, self.seed)
            parts["validation"] = _pick(parts["train"], held)
            parts["train"] = _pick(parts["train"], kept)
        self._parts = {name: ImageSet(*part) for name, part in parts.items()}

    def loader(self, part: str) -> Any:
        data = self._parts[part]
        if part == "train":
            return self.image_loader(data, self.batch_size, Shuffled(data, *self.share))
        return self.image_loader(data, self.test_batch_size)

    def augmented(self, images: Tensor) -> Tensor:
        return random_crops(images, self.share) if self.augment else images


def averaged(images: Tensor, side: int) -> Tensor:
    """Return images ``(B, C, H, W)`` of bytes with ``side`` x ``side`` pixels, rounded means."""
    if images.shape[-1] == side:
        return images
    return F.adaptive_avg_pool2d(images.float(), side).round_().byte()


def random_crops(images: Tensor, share: Share) -> Tensor:
    """Return random crops of images ``(B, C, H, W)`` in a black frame of H / 8, mirrored at random.

    torch's global generator draws for all processes, so that their generators stay equal.
    """
    batch, channels, height, width = images.shape
    padding = height // 8  # 4 of 32 pixels
    corners = torch.randint(2 * padding + 1, (2, share.processes, batch))[:, share.process]
    mirrored = torch.randint(2, (share.processes, batch)).bool()[share.process]
    top, left, mirrored = (
        drawn.to(images.device, non_blocking=True).unsqueeze(1) for drawn in (*corners, mirrored)
    )
    rows = top + torch.arange(height, device=images.device)  # (B, H)
    columns = torch.arange(width, device=images.device)
    columns = left + torch.where(mirrored, width - 1 - columns, columns)  # (B, W)
    pixels = rows.unsqueeze(2) * (width + 2 * padding) + columns.unsqueeze(1)  # (B, H, W)
    pixels = pixels.view(batch, 1, -1).expand(-1, channels, -1)
    return F.pad(images, [padding] * 4).flatten(2).gather(2, pixels).view(images.shape)


def _first_of_each_class(batch: ImageBatch, count: int) -> ImageBatch:
    places = [(batch.labels == label).nonzero().squeeze(1) for label in range(len(CLASSES))]
    fewest = min(len(place) for place in places)
    if count > fewest:
        raise UserError(f"dataset.subset must be at most {fewest}, got {count}")
    return _pick(batch, torch.cat([place[:count] for place in places]).sort().values)


def _pick(batch: ImageBatch, indices: Tensor) -> ImageBatch:
    return ImageBatch(*(tensor[indices] for tensor in batch))


def _read_original(root: str) -> list[Tensor]:
    from torchvision.datasets import CIFAR10

    try:
        parts = [CIFAR10(root, train=train) for train in (True, False)]
    except RuntimeError as error:  # torchvision verifies checksums
        problem = f"files in {Path(root, _FOLDER)} are missing or damaged"
        raise missing_data(problem, "CIFAR10") from error
    return [tensor for part in parts for tensor in _tensors(part.data, part.targets)]


def read_thumbnails() -> list[Tensor]:
    """Return the embedded training images and labels, then those of the test part, by class."""
    with Image.open(THUMBNAILS) as sheet:
        pixels = torch.from_numpy(np.array(sheet))  # (20 * 8, 1000 * 8, 3), a row for each class
    rows = pixels.view(2, len(CLASSES), 8, -1, 8, 3).permute(0, 1, 3, 5, 2, 4)
    images = rows.flatten(1, 2).contiguous()  # (2, 10000, 3, 8, 8)
    labels = torch.arange(len(CLASSES)).repeat_interleave(rows.shape[2])
    return [images[0], labels, images[1], labels]


def _tensors(images: np.ndarray, labels: list[int]) -> tuple[Tensor, Tensor]:
    """Return bytes, ``(N, 32, 32, 3)``, and labels as tensors, channels first."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)
