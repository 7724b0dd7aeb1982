"""Training a task through Lightning's loop, and what a task logs without one."""

from functools import partial
from typing import Any

import pytest
import recorder
import torch
from lightning import LightningModule, Trainer

SGD = partial(torch.optim.SGD, lr=0.1)
# Of Lightning: about PyTorch, and about loaders that hold prepared batches.
QUIET = pytest.mark.filterwarnings(
    "ignore:.*(LeafSpec|does not have many workers|smaller than the logging interval).*"
)


def fit(task: LightningModule, *data: Any, epochs: int = 1, **options: Any) -> Trainer:
    trainer = recorder.trainer(epochs, **options)
    trainer.fit(task, *data)
    return trainer


def logged(task: LightningModule, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Collect what a task logs."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(task, "log", lambda name, value, **_: found.__setitem__(name, value))
    monkeypatch.setattr(task, "log_dict", lambda values, **_: found.update(values))
    return found
