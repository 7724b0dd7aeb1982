"""CIFAR-10, original or as JPEG files, in memory; augmented and normalised on the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from phantomgrad.checks import check_at_least
from phantomgrad_suite.data.cache import digest
from phantomgrad_suite.data.folds import held_out
from phantomgrad_suite.data.images.augment import crop_and_flip, draw
from phantomgrad_suite.data.images.base import (
    ImageBatch,
    ImageData,
    ImageSet,
    evaluated,
    memory_loader,
)
from phantomgrad_suite.data.images.pixels import (
    CLASSES,
    Pixels,
    cifar10_source,
    jpeg_source,
    load_cifar10,
    load_cifar10_jpeg,
)
from phantomgrad_suite.data.loaders import Shuffled
from phantomgrad_suite.runs.errors import UserError

_LOADERS: dict[str, Callable[[Path], Pixels]] = {
    "cifar10": load_cifar10,
    "cifar10-jpeg": load_cifar10_jpeg,
}
_SOURCES: dict[str, Callable[[Path], Path]] = {
    "cifar10": cifar10_source,
    "cifar10-jpeg": jpeg_source,
}
_PADDING = 4


class Cifar10(ImageData):
    """50,000 training and 10,000 test images of ten classes (Krizhevsky, 2009), ``(3, 32, 32)``.

    In a distributed run each process takes its own part of every epoch: Lightning shares the
    training images out anew each time, padded by a few to equal parts, and ``batch_size`` is that
    of one process; evaluation images count exactly once.

    Args:
        name: ``"cifar10"``, or ``"cifar10-jpeg"``, the same images after lossy compression.
        root: the folder that holds ``cifar-10-batches-py``, or ``cifar10-jpeg`` (a folder or a
            ``.tar.xz``).
        batch_size: training images in a batch; the last one of an epoch may be smaller.
        test_batch_size: images in a batch of an evaluation set.
        augment: crop at random after padding with 4 black pixels, and mirror every second image
            on average; the draws are those of torch's global generator.
        validation: number of training images held out, stratified; 0 for none, as the papers.
        subset: keep the first so many training images of each class; ``None`` for all.
        seed: of the validation part.

    Raises:
        MissingDataError: the data set is not there.
        UserError: ``name`` is another; or, when the images are read, they are damaged, or fewer
            than ``validation`` and ``subset`` ask for.
        ValueError: a number is too small.
    """

    mean = (0.4914, 0.4822, 0.4465)
    deviation = (0.2023, 0.1994, 0.2010)
    side = 32
    all_classes = len(CLASSES)

    def __init__(
        self,
        *,
        root: str,
        name: str = "cifar10",
        batch_size: int = 128,
        test_batch_size: int = 128,
        augment: bool = False,
        validation: int = 0,
        subset: int | None = None,
        seed: int = 42,
    ) -> None:
        super().__init__()
        if name not in _LOADERS:
            raise UserError(f"dataset.name must be one of {', '.join(_LOADERS)}, got {name!r}")
        check_at_least("dataset.batch_size", batch_size, 1)
        check_at_least("dataset.test_batch_size", test_batch_size, 1)
        check_at_least("dataset.validation", validation, 0)
        check_at_least("dataset.subset", 1 if subset is None else subset, 1)
        check_at_least("dataset.seed", seed, 0)
        _SOURCES[name](Path(root))  # missing data are said now, not when the trainer asks for them
        self.evaluation_sets = ("test", "validation") if validation else ("test",)
        self._name, self._root, self._augment = name, Path(root), augment
        self._batch_size, self._test_batch_size = batch_size, test_batch_size
        self._validation, self._subset, self._seed = validation, subset, seed
        self._pixels: Pixels | None = None

    @property
    def classes(self) -> int:
        """Ten."""
        return len(CLASSES)

    @property
    def pixels(self) -> Pixels:
        """All images that are used, read when they are first asked for."""
        if self._pixels is None:
            train, test = _LOADERS[self._name](self._root)
            if self._subset is not None:
                train = first_of_each_class(train, self._subset)
            self._pixels = Pixels(train, test)
        return self._pixels

    def facts(self) -> dict[str, Any]:
        """Return name, fingerprint of all pixels and labels, and sizes; and the subset, if any."""
        train, test = self.pixels
        facts = {
            "name": self._name,
            "fingerprint": f"sha256:{digest([*train, *test])}",
            "train": len(train.labels) - self._validation,
            "validation": self._validation,
            "test": len(test.labels),
        }
        if self._subset is not None:
            facts["reduced"] = f"the first {self._subset} training images of each class"
        return facts

    def prepare_data(self) -> None:
        """Decode the images in one process, while the others wait for its cache file."""
        _ = self.pixels

    def setup(self, stage: str | None = None) -> None:
        """Split the images into parts."""
        train, test = self.pixels
        if self._validation:
            kept, held = held_out(train.labels, self._validation, self._seed)
            parts = {"train": _pick(train, kept), "validation": _pick(train, held), "test": test}
        else:
            parts = {"train": train, "test": test}
        self._parts = {name: ImageSet(*part) for name, part in parts.items()}

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training part as bytes; its order is drawn from torch's global generator."""
        part = self._parts["train"]
        return memory_loader(part, self._batch_size, Shuffled(part), pin_memory=self.pin_memory)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """Return each evaluation set as bytes, in a fixed order."""
        return [self._evaluation(self._parts[name]) for name in self.evaluation_sets]

    def _evaluation(self, part: ImageSet) -> DataLoader[Any]:
        size = self._test_batch_size
        sampler = evaluated(part, size, self.share, "dataset.test_batch_size")
        return memory_loader(part, size, sampler, pin_memory=self.pin_memory)

    def augmented(self, images: Tensor) -> Tensor:
        """Return random crops, some of them mirrored, where asked; else the images."""
        if not self._augment:
            return images
        return crop_and_flip(images, draw(len(images), _PADDING, self.share), _PADDING)


def first_of_each_class(batch: ImageBatch, count: int) -> ImageBatch:
    """Return the first ``count`` images of each class, in their order.

    Raises:
        UserError: a class has fewer.
    """
    places = [(batch.labels == label).nonzero().squeeze(1) for label in range(len(CLASSES))]
    fewest = min(len(place) for place in places)
    if count > fewest:
        raise UserError(f"dataset.subset must be at most {fewest}, got {count}")
    return _pick(batch, torch.cat([place[:count] for place in places]).sort().values)


def _pick(batch: ImageBatch, indices: Tensor) -> ImageBatch:
    return ImageBatch(*(tensor[indices] for tensor in batch))
