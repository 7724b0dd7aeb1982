"""Classification of nodes that have any number of labels."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MultilabelF1Score

from phantomgrad_suite.data.graphs.ppi import MultilabelGraph
from phantomgrad_suite.tasks.base import Task


class MultilabelNodeClassification(Task):
    r"""Binary cross-entropy, the mean over nodes and labels, and micro-F1.

    .. math:: F_1 = 2 \, TP / (2 \, TP + FP + FN)

    counted over all nodes and labels of an evaluation set; 0 where nothing is predicted. A label
    is predicted where its logit is positive.

    Args:
        labels: number of labels.
        metric: see :class:`phantomgrad_suite.tasks.Task`.
        task: likewise.
    """

    def __init__(self, *, labels: int, metric: str = "micro_f1", **task: Any) -> None:
        super().__init__(metric=metric, **task)
        self._f1 = nn.ModuleList(
            MultilabelF1Score(labels, average="micro", validate_args=False)
            for _ in self.evaluation_sets
        )

    def training_loss(self, batch: MultilabelGraph) -> tuple[Tensor, int]:
        """Return the mean binary cross-entropy, and the number of nodes."""
        _, loss = self._scored(batch)
        return loss, len(batch.labels)

    def validation_step(
        self, batch: MultilabelGraph, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Count the hits in one graph of an evaluation set."""
        name, f1 = self.evaluation_sets[dataloader_idx], self._f1[dataloader_idx]
        logits, loss = self._scored(batch)
        f1.update((logits > 0).int(), batch.labels.int())  # type: ignore[operator]
        self.log(f"{name}/micro_f1", f1, on_epoch=True, add_dataloader_idx=False)
        if name == "validation":
            self.log(
                "validation/loss",
                loss,
                batch_size=len(batch.labels),
                add_dataloader_idx=False,
                sync_dist=True,
            )

    def _scored(self, batch: MultilabelGraph) -> tuple[Tensor, Tensor]:
        logits: Tensor = self.model(batch.features, batch.propagation)
        return logits, F.binary_cross_entropy_with_logits(logits, batch.labels)
