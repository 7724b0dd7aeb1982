"""CIFAR-10 as the tests load it, and its parts in one batch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phantomgrad_suite.data import Cifar10
from phantomgrad_suite.data.images.base import ImageBatch

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
Jpeg = partial(Cifar10, name="cifar10-jpeg")


def ready(root: Path, name: str = "cifar10-jpeg", **options: Any) -> Cifar10:
    data = Cifar10(root=str(root), name=name, **options)
    data.setup()
    return data


def whole(data: Cifar10, part: str) -> ImageBatch:
    """Return a part in one batch, as its loader gives it."""
    loaders = dict(zip(data.evaluation_sets, data.val_dataloader(), strict=True))
    loader = data.train_dataloader() if part == "train" else loaders[part]
    return ImageBatch(*(torch.cat(tensors) for tensors in zip(*loader, strict=True)))


def as_set(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}
