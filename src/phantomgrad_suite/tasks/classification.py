"""Classification of whatever a batch holds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from phantomgrad_suite.tasks.base import Task


class Classification(Task):
    """Negative log-likelihood and accuracy; subclasses say what is scored in a batch.

    Args:
        classes: number of classes.
        task: see :class:`phantomgrad_suite.tasks.Task`.
    """

    def __init__(self, *, classes: int, **task: Any) -> None:
        super().__init__(**task)
        self._accuracy = nn.ModuleList(
            MulticlassAccuracy(classes, average="micro", validate_args=False)
            for _ in self.evaluation_sets
        )

    @abstractmethod
    def scored(self, batch: Any, part: str) -> tuple[Tensor, Tensor]:
        """Return log-probabilities, ``(n, classes)``, and labels, ``(n,)``, of a part."""

    def training_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the mean negative log-likelihood, and the number of labels."""
        scores, labels = self.scored(batch, "train")
        return F.nll_loss(scores, labels), len(labels)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Count the hits of one evaluation set."""
        name = self.evaluation_sets[dataloader_idx]
        scores, labels = self.scored(batch, name)
        accuracy = self._accuracy[dataloader_idx]
        accuracy.update(scores, labels)  # type: ignore[operator]
        self.log(f"{name}/accuracy", accuracy, on_epoch=True, add_dataloader_idx=False)
        if name == "validation":
            loss = F.nll_loss(scores, labels)
            self.log(
                "validation/loss",
                loss,
                batch_size=len(labels),
                add_dataloader_idx=False,
                sync_dist=True,
            )
