"""Handwritten digits of 8 x 8 pixels, which come with scikit-learn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import SequentialSampler

from phantomgrad_suite.checkpoint.loaders import ResumableLoader, Shuffled
from phantomgrad_suite.data.base import DataModule
from phantomgrad_suite.data.folds import stratified_split
from phantomgrad_suite.data.images.base import ImageSet
from phantomgrad_suite.data.sources import digest

_WHITE = 16  # the largest value of a pixel
_FIFTHS = 5  # three of them train, one validates, one is tested


@dataclass(kw_only=True, eq=False)
class Digits(DataModule):
    """The 1,797 digits of the UCI test set (Alpaydin and Kaynak, 1998), ``(1, 8, 8)`` each.

    Pixels are scaled to [0, 1], then standardised over the training part. The split is stratified.
    """

    evaluation_sets = ("test", "validation")
    in_channels, classes = 1, 10

    batch_size: int = 64
    seed: int = 42

    def __post_init__(self) -> None:
        super().__init__()
        self.check_settings(1, "batch_size")
        self.check_settings(0, "seed")
        from sklearn.datasets import load_digits  # as in data/folds.py

        digits = load_digits()
        pixels, labels = (a.astype(np.uint8) for a in (digits.images, digits.target))
        self._fingerprint = digest(map(torch.from_numpy, (pixels, labels)))
        images = torch.from_numpy(pixels).float().div(_WHITE).unsqueeze(1)  # (1797, 1, 8, 8)
        targets = torch.from_numpy(labels).long()
        split = stratified_split(targets, 0, _FIFTHS, self.seed)
        images = (images - images[split.train].mean()) / images[split.train].std()
        self._parts = {
            name: ImageSet(images[part], targets[part]) for name, part in split._asdict().items()
        }

    def facts(self) -> dict[str, Any]:
        sizes = {name: len(part) for name, part in self._parts.items()}
        return {"name": "Digits", "fingerprint": f"sha256:{self._fingerprint}", **sizes}

    def loader(self, part: str) -> Any:
        data = self._parts[part]
        sampler = Shuffled(data, *self.share) if part == "train" else SequentialSampler(data)
        return ResumableLoader(data, self.batch_size, sampler=sampler)
