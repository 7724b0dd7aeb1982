"""CIFAR-10, original or as JPEG files, in memory; augmented and normalised on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phantomgrad_suite.data.cache import digest
from phantomgrad_suite.data.folds import held_out
from phantomgrad_suite.data.images.augment import crop_and_flip, draw
from phantomgrad_suite.data.images.base import ImageBatch, ImageData, ImageSet
from phantomgrad_suite.data.images.cifar_files import CLASSES, find, read
from phantomgrad_suite.data.loaders import Shuffled
from phantomgrad_suite.runs.errors import UserError

_PADDING = 4


@dataclass(kw_only=True, eq=False)
class Cifar10(ImageData):
    """50,000 training and 10,000 test images of ten classes (Krizhevsky, 2009), ``(3, 32, 32)``.

    In a distributed run each process takes its own part of every epoch: Lightning distributes the
    training images anew each time, with a few repeated to make the parts equal, and ``batch_size``
    is that of one process; evaluation images count exactly once.

    Args:
        name: ``"cifar10"``, or ``"cifar10-jpeg"``, the same images after lossy compression.
        root: the folder that holds ``cifar-10-batches-py``, or ``cifar10-jpeg`` (a folder or a
            ``.tar.xz``).
        batch_size: training images in a batch; the last one of an epoch may be smaller.
        test_batch_size: images in a batch of an evaluation set.
        augment: crop at random after padding with 4 black pixels, and mirror half of the images
            on average; random numbers are drawn from torch's global generator.
        validation: number of training images held out, stratified; 0 for none, as in the papers.
        subset: number of training images of each class, the first ones; ``None`` for all.
        seed: of the validation part.

    Raises:
        MissingDataError: the data set is not in ``root``.
        UserError: ``name`` is unknown; or, when the images are read, they are damaged, or fewer
            than ``validation`` and ``subset`` need.
    """

    mean = (0.4914, 0.4822, 0.4465)
    deviation = (0.2023, 0.1994, 0.2010)
    side = 32
    classes = all_classes = len(CLASSES)

    root: str
    name: str = "cifar10"
    batch_size: int = 128
    test_batch_size: int = 128
    augment: bool = False
    validation: int = 0
    subset: int | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        super().__init__()
        self.check_settings(1, "batch_size", "test_batch_size", "subset")
        self.check_settings(0, "validation", "seed")
        self._source = find(self.name, Path(self.root))
        self.evaluation_sets = ("test", "validation") if self.validation else ("test",)

    @cached_property
    def pixels(self) -> dict[str, ImageBatch]:
        """The images of the training and the test part, read when they are first needed."""
        pixels = read(self._source)
        if self.subset is not None:
            pixels["train"] = _first_of_each_class(pixels["train"], self.subset)
        return pixels

    def facts(self) -> dict[str, Any]:
        """Return name, fingerprint of all pixels and labels, and sizes; and the subset, if any."""
        train, test = self.pixels["train"], self.pixels["test"]
        facts = {
            "name": self.name,
            "fingerprint": f"sha256:{digest([*train, *test])}",
            "train": len(train.labels) - self.validation,
            "validation": self.validation,
            "test": len(test.labels),
        }
        if self.subset is not None:
            facts["reduced"] = f"the first {self.subset} training images of each class"
        return facts

    def prepare_data(self) -> None:
        """Decode the images in one process, while the others wait for its cache file."""
        _ = self.pixels

    def setup(self, stage: str | None = None) -> None:
        """Split the images into parts."""
        parts = dict(self.pixels)
        if self.validation:
            kept, held = held_out(parts["train"].labels, self.validation, self.seed)
            parts["validation"] = _pick(parts["train"], held)
            parts["train"] = _pick(parts["train"], kept)
        self._parts = {name: ImageSet(*part) for name, part in parts.items()}

    def loader(self, part: str) -> Any:
        """Return a part as bytes; that of training in an order from torch's global generator."""
        data = self._parts[part]
        if part == "train":
            return self.image_loader(data, self.batch_size, Shuffled(data))
        return self.image_loader(data, self.test_batch_size)

    def augmented(self, images: Tensor) -> Tensor:
        """Return random crops, some of them mirrored, if ``augment`` is set."""
        if not self.augment:
            return images
        return crop_and_flip(images, draw(len(images), _PADDING, self.share), _PADDING)


def _first_of_each_class(batch: ImageBatch, count: int) -> ImageBatch:
    places = [(batch.labels == label).nonzero().squeeze(1) for label in range(len(CLASSES))]
    fewest = min(len(place) for place in places)
    if count > fewest:
        raise UserError(f"dataset.subset must be at most {fewest}, got {count}")
    return _pick(batch, torch.cat([place[:count] for place in places]).sort().values)


def _pick(batch: ImageBatch, indices: Tensor) -> ImageBatch:
    return ImageBatch(*(tensor[indices] for tensor in batch))
