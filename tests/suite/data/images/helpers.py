"""Image data sets as the tests load them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from recorder import Recorder, trainer
from torch import Tensor

from phantomgrad_suite.data import Cifar10, DataModule, ImageBatch, ImageNet

QUIET = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


def cifar(root: Path, name: str = "cifar10", **options: Any) -> Cifar10:
    data = Cifar10(root=str(root), name=name, **options)
    data.setup()
    return data


def imagenet(root: Path, **options: Any) -> ImageNet:
    return ImageNet(root=str(root), **{"workers": 0, "batch_size": 5, **options})


def whole(data: DataModule, part: str) -> ImageBatch:
    """Return a part in one batch, as its loader gives it."""
    return ImageBatch(*(torch.cat(tensors) for tensors in zip(*data.loader(part), strict=True)))


def as_set(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def normalised(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Scale bytes to [0, 1], then standardise each channel."""
    center, scale = (torch.tensor(values).view(3, 1, 1) for values in (mean, deviation))
    return (images.float() / 255 - center) / scale


def fit(data: DataModule, epochs: int, callbacks: Any = None, **options: Any) -> Recorder:
    torch.manual_seed(4)
    module = Recorder()
    trainer(epochs, callbacks=callbacks).fit(module, data, **options)
    return module
