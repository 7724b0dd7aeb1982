"""Classification of graphs, nodes and images."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy, MultilabelF1Score

from phantomgrad_suite.data.graphs.chains import NodeBatch
from phantomgrad_suite.data.graphs.ppi import MultilabelGraph
from phantomgrad_suite.data.graphs.tu import GraphBatch
from phantomgrad_suite.data.images.base import ImageBatch
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks.base import Task


class Classification(Task):
    """Negative log-likelihood, and accuracy over all labels of an evaluation set."""

    score, score_class = "accuracy", MulticlassAccuracy
    loss: Callable[[Tensor, Tensor], Tensor] = staticmethod(F.nll_loss)

    def __init__(self, *, classes: int, **task: Any) -> None:
        super().__init__(**task)
        new: Any = self.score_class
        options = {"average": "micro", "validate_args": False}
        self._scores = nn.ModuleList(new(classes, **options) for _ in self.evaluation_sets)

    @abstractmethod
    def scored(self, batch: Any, part: str) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities, ``(n, classes)``, and labels, ``(n,)``, of a part."""

    def training_loss(self, batch: Any) -> tuple[Tensor, int]:
        scores, labels = self.scored(batch, "train")
        if self._trainer and self.global_step == 0:  # not always, as it waits for the device
            self._check(scores.detach())
        return self.loss(scores, labels), len(labels)

    def _check(self, scores: Tensor) -> None:
        """Raise for logits, with which the loss would have no lower bound."""
        if self.loss is F.nll_loss and (scores.float().logsumexp(dim=1).abs() > 0.1).any():
            raise UserError(
                "the model must return log-probabilities, whose exponentials sum to 1: end it with "
                "log_softmax"
            )

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        name, score = self.evaluation_sets[dataloader_idx], self._scores[dataloader_idx]
        scores, labels = self.scored(batch, name)
        score.update(self.predicted(scores), labels)  # type: ignore[operator]
        self.log(f"{name}/{self.score}", score, on_epoch=True, add_dataloader_idx=False)
        if name == "validation":
            options: Any = {"batch_size": len(labels), "add_dataloader_idx": False}
            self.log("validation/loss", self.loss(scores, labels), sync_dist=True, **options)

    def predicted(self, scores: Tensor) -> Tensor:
        return scores


class GraphClassification(Classification):
    """One label per graph."""

    batch_type = GraphBatch

    def scored(self, batch: GraphBatch, part: str) -> tuple[Tensor, Tensor]:
        scores = self.apply_model(batch.features, batch.propagation, batch.pooling, propagated=True)
        return scores, batch.labels


class NodeClassification(Classification):
    """One label per node of a single graph, with a mask for each part."""

    batch_type = NodeBatch

    def scored(self, batch: NodeBatch, part: str) -> tuple[Tensor, Tensor]:
        mask = batch.masks[part]
        return self.apply_model(batch.features, batch.propagation)[mask], batch.labels[mask]


class MultilabelNodeClassification(Classification):
    r"""Any number of labels per node: binary cross-entropy and micro-F1.

    .. math:: F_1 = 2 \, TP / (2 \, TP + FP + FN)

    counted over all nodes and labels of an evaluation set; 0 without any true positive. A label is
    predicted where its logit is positive.
    """

    batch_type = MultilabelGraph
    score, score_class = "micro_f1", MultilabelF1Score
    loss = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(self, *, labels: int, metric: str = "micro_f1", **task: Any) -> None:
        super().__init__(classes=labels, metric=metric, **task)

    def scored(self, batch: MultilabelGraph, part: str) -> tuple[Tensor, Tensor]:
        return self.apply_model(batch.features, batch.propagation), batch.labels

    def predicted(self, scores: Tensor) -> Tensor:
        return (scores > 0).int()


class ImageClassification(Classification):
    """One label per image; evaluation solves for the equilibrium during pretraining, too."""

    batch_type = ImageBatch, list  # torch collates pairs to lists

    def __init__(
        self,
        *,
        pretraining_steps: int | float = 0,
        pretraining_layers: int = 10,
        **classification: Any,
    ) -> None:
        super().__init__(**classification)
        self.pretrain(pretraining_steps, pretraining_layers)

    def scored(self, batch: ImageBatch | Sequence[Tensor], part: str) -> tuple[Tensor, Tensor]:
        images, labels = batch
        layers = self.unrolled_layers if part == "train" else 0
        return self.apply_model(images, **({"unrolled": layers} if layers else {})), labels
