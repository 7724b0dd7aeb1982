"""A tiny ImageNet as the tests load it, and what a loop is shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from recorder import Recorder, trainer

from phantomgrad_suite.data import ImageNet


def small(root: Path, **options: Any) -> ImageNet:
    return ImageNet(root=str(root), **{"workers": 0, "batch_size": 5, **options})


def fit(data: ImageNet, epochs: int, **more: Any) -> Recorder:
    torch.manual_seed(4)
    module = Recorder()
    trainer(epochs).fit(module, data, **more)
    return module
