"""ImageNet, or any data set in torchvision's ImageFolder layout, by the papers' protocols."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, DistributedSampler

from phantomgrad.checks import check_choice
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.folds import held_out
from phantomgrad_suite.data.images.base import ImageBatch, ImageData, open_folder, read_image
from phantomgrad_suite.runs.errors import UserError

_SIZE, _RESIZED = 224, 256
# Area and aspect ratio of the random crops, relative to the image.
_CROPS = {
    "mdeq": {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)},
    "phantom": {"scale": (0.1, 1.0), "ratio": (0.8, 1.25)},
}


@dataclass(kw_only=True, eq=False)
class ImageNet(ImageData):
    """The ILSVRC 2012 classification set (Russakovsky et al., 2015), ``(3, 224, 224)``.

    Worker processes decode, crop and flip, by random numbers that depend on the seed of the run,
    the epoch and the image alone. Processes share the images as in :class:`.Cifar10`.

    The random crops of the protocol ``"mdeq"`` are torchvision's by default, those of ``"phantom"``
    are of the phantom gradient release, which tries a hundred crops and not ten before the centre.
    """

    mean = (0.485, 0.456, 0.406)
    deviation = (0.229, 0.224, 0.225)
    side = _SIZE
    all_classes = 1000

    root: str  # holds train/<class>/* and val/<class>/*
    name: str = "imagenet"
    protocol: Literal["mdeq", "phantom"] = "mdeq"
    batch_size: int = 16
    test_batch_size: int = 50
    workers: int = 8  # decoding processes of each training process
    validation: int = 0
    seed: int = 42

    def __post_init__(self) -> None:
        super().__init__()
        check_choice("dataset.protocol", self.protocol, tuple(_CROPS))
        self.check_settings(1, "batch_size", "test_batch_size")
        self.check_settings(0, "workers", "validation", "seed")
        root = Path(self.root)
        train, test = (open_folder(root, part, "ImageNet") for part in ("train", "val"))
        self._paths = [path for path, _ in train.samples + test.samples]
        different = sorted(set(train.classes) ^ set(test.classes))
        if different or len(train.classes) < 2:
            found = f"only in one of them: {', '.join(different[:3])}" if different else "one class"
            raise UserError(
                f"{root} must hold the same classes in train and val, at least two; {found}"
            )
        self.classes = len(train.classes)
        self._parts = {"train": train.samples, "test": test.samples}
        if self.validation:
            kept, held = held_out(torch.tensor(train.targets), self.validation, self.seed)
            self._parts["train"] = [train.samples[i] for i in kept]
            self._parts["validation"] = [train.samples[i] for i in held]
            self.evaluation_sets = ("test", "validation")

    @cached_property
    def _fingerprint(self) -> str:
        """Of names, with their classes, and sizes of all files: reading them would take hours."""
        listing = hashlib.sha256()
        for path in self._paths:
            relative = Path(path).relative_to(self.root).as_posix()
            listing.update(f"{relative} {Path(path).stat().st_size}\n".encode())
        return f"sha256-of-names-and-sizes:{listing.hexdigest()}"

    def facts(self) -> dict[str, Any]:
        """Return name, sizes and a fingerprint of names and sizes of all files, not of pixels."""
        return {
            "name": self.name,
            "fingerprint": self._fingerprint,
            "classes": self.classes,
            **{part: len(samples) for part, samples in self._parts.items()},
        }

    def loader(self, part: str) -> Any:
        training = part == "train"
        data = FolderSet(self._parts[part], transform(self.protocol if training else None))
        return self.image_loader(
            data,
            self.batch_size if training else self.test_batch_size,
            SeededOrder(data, self.share) if training else None,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            worker_init_fn=self.worker_init_fn,
        )

    def on_before_batch_transfer(self, batch: ImageBatch | str, dataloader_idx: int) -> ImageBatch:
        """Raise an error of a worker here, where its message is not lost in a traceback."""
        if isinstance(batch, str):
            raise UserError(batch)
        return batch


class FolderSet(Dataset[Any]):
    """Images in files, given by path and class; ``transform`` makes them ``(3, H, W)`` bytes."""

    def __init__(self, samples: list[tuple[str, int]], transform: Callable[[Any], Tensor]) -> None:
        # Arrays: reading a list writes reference counts, and each worker would copy it.
        self._paths = np.array([os.fsencode(path) for path, _ in samples])
        self._labels = np.array([label for _, label in samples])
        self._transform = transform

    def __len__(self) -> int:
        return len(self._labels)

    def __getitems__(self, chosen: list[Any]) -> ImageBatch | str:
        """Return the images of indices, or of pairs of an index and a random seed; or an error."""
        images, labels = [], []
        with torch.random.fork_rng(devices=[]):
            for choice in chosen:
                index, seed = choice if isinstance(choice, tuple) else (choice, 0)
                torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed CUDA too
                path = os.fsdecode(bytes(self._paths[index]))
                try:
                    images.append(self._transform(read_image(path)))
                except UserError as error:
                    return str(error)
                labels.append(int(self._labels[index]))
        return ImageBatch(torch.stack(images), torch.tensor(labels))


class SeededOrder(DistributedSampler[Any]):
    """A new order of the images in every epoch, and a random seed for each of them.

    Both follow from torch's initial seed, the epoch (set by Lightning) and the image.
    """

    def __init__(self, data: FolderSet, share: Share) -> None:
        seed = torch.initial_seed() % 2**32
        super().__init__(data, num_replicas=share.processes, rank=share.process, seed=seed)

    def __iter__(self) -> Iterator[Any]:
        # torch's CPU generator uses 32 bits of a seed: mixed by epoch, consecutive by image.
        first = int(np.random.SeedSequence([self.seed, self.epoch]).generate_state(1)[0])
        return ((index, (first + index) % 2**32) for index in super().__iter__())


def transform(protocol: str | None) -> Any:
    """Return a random crop, resized to 224 x 224, and a random flip; in evaluation, the centre."""
    from torchvision.transforms import v2

    if protocol is None:
        parts = [v2.Resize(_RESIZED, antialias=True), v2.CenterCrop(_SIZE)]
    else:
        crop = v2.RandomResizedCrop(_SIZE, **_CROPS[protocol], antialias=True)
        parts = [crop, v2.RandomHorizontalFlip()]
    return v2.Compose([*parts, v2.PILToTensor()])
