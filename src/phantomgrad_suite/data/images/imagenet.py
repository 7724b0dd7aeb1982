"""ImageNet, or any data set in torchvision's ImageFolder layout, by the papers' protocols."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from phantomgrad.checks import check_at_least
from phantomgrad_suite.checkpoint.signals import leave_signals_to_main_process
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.folds import held_out
from phantomgrad_suite.data.images.base import ImageBatch, ImageData, as_it_is, evaluated
from phantomgrad_suite.data.loaders import ResumableLoader
from phantomgrad_suite.runs.errors import MissingDataError, UserError

Sample = tuple[str, int]
"""The path of an image, and its class."""

PARTS = ("train", "val")
_SIZE, _RESIZED = 224, 256
# Area and aspect ratio of the random crops, as shares of the image.
_CROPS = {
    "mdeq": {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)},
    "phantom": {"scale": (0.1, 1.0), "ratio": (0.8, 1.25)},
}


class ImageNet(ImageData):
    """The ILSVRC 2012 classification set (Russakovsky et al., 2015), ``(3, 224, 224)``.

    Worker processes decode, crop and flip; bytes travel, and the device normalises. Random
    numbers belong to run, epoch and image: neither the number of workers nor an interruption
    changes them. In a distributed run each process takes its own part of every epoch, padded by a
    few to equal parts; evaluation images count exactly once.

    Args:
        root: the folder that holds ``train/<class>/*`` and ``val/<class>/*``.
        name: of the data set.
        protocol: ``"mdeq"`` (random crops of torchvision's defaults) or ``"phantom"`` (the phantom
            gradient release: area 0.1 to 1, aspect 0.8 to 1.25; its DALI pipeline tries a hundred
            random crops before it falls back to the centre, torchvision ten).
        batch_size: training images in a batch of one process; the last may be smaller.
        test_batch_size: images in a batch of the evaluation set.
        workers: decoding processes beside each training process.
        validation: number of training images held out, stratified, and seen as the evaluation
            images are; 0 for none, as the papers.
        seed: of the validation part.

    Raises:
        MissingDataError: ``root`` does not hold the two folders.
        UserError: their classes are fewer than two, or differ; ``protocol`` is another; or
            ``validation`` leaves a class without an image here or there.
        ValueError: a number is too small.
    """

    mean = (0.485, 0.456, 0.406)
    deviation = (0.229, 0.224, 0.225)
    side = _SIZE
    all_classes = 1000

    def __init__(
        self,
        *,
        root: str,
        name: str = "imagenet",
        protocol: Literal["mdeq", "phantom"] = "mdeq",
        batch_size: int = 16,
        test_batch_size: int = 50,
        workers: int = 8,
        validation: int = 0,
        seed: int = 42,
    ) -> None:
        super().__init__()
        if protocol not in _CROPS:
            raise UserError(f"dataset.protocol must be 'mdeq' or 'phantom', got {protocol!r}")
        check_at_least("dataset.batch_size", batch_size, 1)
        check_at_least("dataset.test_batch_size", test_batch_size, 1)
        check_at_least("dataset.workers", workers, 0)
        check_at_least("dataset.validation", validation, 0)
        check_at_least("dataset.seed", seed, 0)
        self._name, self._workers = name, workers
        self._batch_size, self._test_batch_size = batch_size, test_batch_size
        self._train, self._test = (open_folder(Path(root), part) for part in PARTS)
        _check_classes(Path(root), self._train.classes, self._test.classes)
        self._parts = {"train": self._train.samples, "test": self._test.samples}
        if validation:
            self._parts |= _held_out(self._train.samples, validation, seed)
        self.evaluation_sets = ("test", "validation") if validation else ("test",)
        self._transforms = training_transform(protocol), evaluation_transform()

    @property
    def classes(self) -> int:
        """Number of class folders; 1000 of ImageNet."""
        return len(self._train.classes)

    def facts(self) -> dict[str, Any]:
        """Return name, sizes and a fingerprint of names and sizes of all files, not of pixels."""
        listing = hashlib.sha256()
        for part, folder in zip(PARTS, (self._train, self._test), strict=True):
            for path, _ in folder.samples:
                relative = Path(path).relative_to(folder.root).as_posix()
                listing.update(f"{part}/{relative} {Path(path).stat().st_size}\n".encode())
        return {
            "name": self._name,
            "fingerprint": f"sha256-of-names-and-sizes:{listing.hexdigest()}",
            "classes": self.classes,
            **{part: len(samples) for part, samples in self._parts.items()},
        }

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training images as bytes, in another order every epoch."""
        data = FolderSet(self._parts["train"], self._transforms[0])
        return self._loader(data, self._batch_size, SeededOrder(data, self.share))

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """Return each evaluation set as bytes, in a fixed order."""
        return [self._evaluation(self._parts[name]) for name in self.evaluation_sets]

    def _evaluation(self, samples: list[Sample]) -> DataLoader[Any]:
        data, size = FolderSet(samples, self._transforms[1]), self._test_batch_size
        order = evaluated(data, size, self.share, "dataset.test_batch_size")
        return self._loader(data, size, order)

    def augmented(self, images: Tensor) -> Tensor:
        """Return the images: the workers have cropped and flipped them."""
        return images

    def on_before_batch_transfer(
        self, batch: ImageBatch | Unreadable, dataloader_idx: int
    ) -> ImageBatch:
        """Raise here what a worker could only have raised wrapped in its traceback."""
        if isinstance(batch, Unreadable):
            raise UserError(str(batch))
        return batch

    def _loader(
        self, data: FolderSet, batch_size: int, order: DistributedSampler[Any]
    ) -> DataLoader[Any]:
        return ResumableLoader(
            data,
            batch_size=batch_size,
            sampler=order,
            collate_fn=as_it_is,
            num_workers=self._workers,
            persistent_workers=self._workers > 0,
            worker_init_fn=leave_signals_to_main_process,
            pin_memory=self.pin_memory,
        )


class Unreadable(str):
    """What a worker says of an image that it cannot decode, in the place of its batch."""

    __slots__ = ()


class FolderSet(Dataset[Any]):
    """Images in files; a batch is decoded in one call.

    Args:
        samples: paths and classes.
        transform: makes an image ``(3, H, W)`` bytes.
    """

    def __init__(self, samples: list[Sample], transform: Callable[[Any], Tensor]) -> None:
        # In arrays: reading a list writes its reference counts, and each worker would own a copy.
        self._paths = np.array([os.fsencode(path) for path, _ in samples])
        self._labels = np.array([label for _, label in samples])
        self._transform = transform

    def __len__(self) -> int:
        return len(self._labels)

    def __getitems__(self, chosen: list[Any]) -> ImageBatch | Unreadable:
        """Return the images of indices, or of pairs (index, seed of its random numbers)."""
        images, labels = [], []
        with torch.random.fork_rng(devices=[]):
            for choice in chosen:
                index, seed = choice if isinstance(choice, tuple) else (choice, 0)
                torch.default_generator.manual_seed(seed)  # torch.manual_seed: CUDA's as well
                path = os.fsdecode(bytes(self._paths[index]))
                try:
                    images.append(self._decoded(path))
                except (OSError, ValueError) as error:
                    return Unreadable(f"{path} is no readable image ({error})")
                labels.append(int(self._labels[index]))
        return ImageBatch(torch.stack(images), torch.tensor(labels))

    def _decoded(self, path: str) -> Tensor:
        from torchvision.datasets.folder import pil_loader

        return self._transform(pil_loader(path))


class SeededOrder(DistributedSampler[Any]):
    """Another order of the images in every epoch, each with a seed for its random numbers.

    Both follow from torch's initial seed, the epoch (Lightning sets it) and the image, so that a
    resumed run goes on as if it had not been interrupted.

    Args:
        data: the images.
        share: which part of them this process takes.
    """

    def __init__(self, data: FolderSet, share: Share) -> None:
        seed = torch.initial_seed() % 2**32
        super().__init__(data, num_replicas=share.processes, rank=share.process, seed=seed)

    def __iter__(self) -> Iterator[Any]:
        # Of a seed, torch's CPU generator uses 32 bits: mixed by epoch, consecutive by image.
        first = int(np.random.SeedSequence([self.seed, self.epoch]).generate_state(1)[0])
        return ((index, (first + index) % 2**32) for index in super().__iter__())


def training_transform(protocol: str) -> Any:
    """Return the random crop, resized to 224 x 224 by a triangular filter, and the random flip."""
    from torchvision.transforms import v2

    crop = v2.RandomResizedCrop(_SIZE, **_CROPS[protocol], antialias=True)
    return v2.Compose([crop, v2.RandomHorizontalFlip(), v2.PILToTensor()])


def evaluation_transform() -> Any:
    """Return the central 224 x 224 pixels of an image whose shorter side is made 256."""
    from torchvision.transforms import v2

    resize = v2.Resize(_RESIZED, antialias=True)
    return v2.Compose([resize, v2.CenterCrop(_SIZE), v2.PILToTensor()])


def open_folder(root: Path, part: str) -> Any:
    """Return torchvision's ``ImageFolder`` of a part.

    Raises:
        MissingDataError: there is none.
        UserError: it holds no class folders, or an empty one.
    """
    from torchvision.datasets import ImageFolder

    if not (root / part).is_dir():
        raise MissingDataError(
            f"{root} holds no folder {part}: `python scripts/fetch_data.py ImageNet` says how to "
            "arrange the images; or set dataset.root"
        )
    try:
        return ImageFolder(str(root / part))
    except FileNotFoundError as error:
        raise UserError(
            f"{root / part} must hold one folder of images for each class "
            f"({str(error).rstrip('. ')})"
        ) from error


def _held_out(samples: list[Sample], count: int, seed: int) -> dict[str, list[Sample]]:
    """Return the training and the validation part; the same in every process."""
    split = held_out(torch.tensor([label for _, label in samples]), count, seed)
    names = ("train", "validation")
    return {n: [samples[i] for i in part] for n, part in zip(names, split, strict=True)}


def _check_classes(root: Path, train: list[str], val: list[str]) -> None:
    if len(train) < 2:
        raise UserError(f"{root / 'train'} must hold at least two classes, holds {len(train)}")
    different = sorted(set(train) ^ set(val))
    if different:
        raise UserError(
            f"{root} must hold the same classes in train and val: {', '.join(different[:3])}"
            f"{' ...' * (len(different) > 3)} in one of them only"
        )
