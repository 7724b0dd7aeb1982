"""Classification of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from phantomgrad_suite.data.images.base import ImageBatch
from phantomgrad_suite.tasks.classification import Classification
from phantomgrad_suite.tasks.pretraining import Pretraining


class ImageClassification(Classification):
    """One label for each image of a batch.

    A batch is an :class:`~phantomgrad_suite.data.ImageBatch`, or any other pair of images and labels, as
    the loaders of torchvision's data sets make them.

    A model may be pretrained, see :class:`phantomgrad_suite.tasks.pretraining.Pretraining`; evaluation
    solves for the equilibrium from the start.

    Args:
        pretraining_steps: optimizer steps of that stage.
        pretraining_layers: applications of the cell in it.
        classification: see :class:`phantomgrad_suite.tasks.classification.Classification`.
    """

    def __init__(
        self, *, pretraining_steps: int = 0, pretraining_layers: int = 10, **classification: Any
    ) -> None:
        super().__init__(**classification)
        self.pretraining = Pretraining(pretraining_steps, pretraining_layers)

    def scored(self, batch: ImageBatch | Sequence[Tensor], part: str) -> tuple[Tensor, Tensor]:
        """Score every image."""
        images, labels = batch
        layers = self.pretraining.layers_at(self.global_step) if part == "train" else 0
        told = {"unrolled": layers} if layers else {}
        return self.model(images, **told), labels
