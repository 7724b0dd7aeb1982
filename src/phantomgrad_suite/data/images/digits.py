"""Handwritten digits of 8 x 8 pixels, which scikit-learn brings along. Never fetched."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, SequentialSampler

from phantomgrad.checks import check_at_least
from phantomgrad_suite.data.base import LabelledData
from phantomgrad_suite.data.folds import stratified_split
from phantomgrad_suite.data.images.base import ImageSet, memory_loader
from phantomgrad_suite.data.loaders import Shuffled

_WHITE = 16  # the largest value of a pixel
_PARTS = 5  # three of them train, one validates, one is tested


class Digits(LabelledData):
    """The 1,797 digits of the UCI test set (Alpaydin and Kaynak, 1998), ``(1, 8, 8)`` each.

    Pixels are scaled to [0, 1], then to mean 0 and deviation 1 over the training part. The split
    is stratified: three fifths train, one fifth validates, one fifth is tested.

    Args:
        batch_size: images in a batch; the training part is shuffled anew in every epoch.
        seed: of the split.

    Raises:
        ValueError: ``batch_size`` or ``seed`` is too small.
    """

    evaluation_sets = ("test", "validation")

    def __init__(self, *, batch_size: int = 64, seed: int = 42) -> None:
        super().__init__()
        check_at_least("dataset.batch_size", batch_size, 1)
        check_at_least("dataset.seed", seed, 0)
        self._batch_size = batch_size
        pixels, labels = load_pixels()
        self._fingerprint = hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()
        images = torch.from_numpy(pixels).float().div(_WHITE).unsqueeze(1)  # (1797, 1, 8, 8)
        classes = torch.from_numpy(labels).long()
        split = stratified_split(classes, 0, _PARTS, seed)
        images = (images - images[split.train].mean()) / images[split.train].std()
        self._parts = {
            name: ImageSet(images[part], classes[part]) for name, part in split._asdict().items()
        }

    @property
    def in_channels(self) -> int:
        """One: the pixels are grey."""
        return 1

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def facts(self) -> dict[str, Any]:
        """Return name, fingerprint and sizes."""
        sizes = {name: len(part) for name, part in self._parts.items()}
        return {"name": "Digits", "fingerprint": f"sha256:{self._fingerprint}", **sizes}

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training part; its order is drawn from torch's global generator."""
        part = self._parts["train"]
        return memory_loader(part, self._batch_size, Shuffled(part))

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """Return each evaluation set, in a fixed order."""
        parts = [self._parts[name] for name in self.evaluation_sets]
        return [memory_loader(part, self._batch_size, SequentialSampler(part)) for part in parts]


def load_pixels() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels from 0 to 16, ``(1797, 8, 8)``, and labels, ``(1797,)``, as bytes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images.astype(np.uint8), digits.target.astype(np.uint8)
