"""Classification of images."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from phantomgrad.checks import check_at_least
from phantomgrad.data.images import ImageBatch
from phantomgrad.tasks.classification import Classification


class ImageClassification(Classification):
    """One label for each image of a batch.

    A model may be pretrained as a plain weight-tied network (Bai et al., 2020): in the first steps
    of training so many applications of its cell take the place of solver and gradient. Optimizer
    and schedule go on through the change, and evaluation solves for the equilibrium from the start.

    Args:
        pretraining_steps: optimizer steps of that stage.
        pretraining_layers: applications of the cell in it; the model takes them as ``unrolled``.
        classification: see :class:`phantomgrad.tasks.classification.Classification`.
    """

    def __init__(
        self, *, pretraining_steps: int = 0, pretraining_layers: int = 10, **classification: Any
    ) -> None:
        super().__init__(**classification)
        check_at_least("pretraining_steps", pretraining_steps, 0)
        check_at_least("pretraining_layers", pretraining_layers, 1)
        self._pretraining_steps = pretraining_steps
        self._pretraining_layers = pretraining_layers

    def scored(self, batch: ImageBatch, part: str) -> tuple[Tensor, Tensor]:
        """Score every image."""
        if part == "train" and self.global_step < self._pretraining_steps:
            return self.model(batch.images, unrolled=self._pretraining_layers), batch.labels
        return self.model(batch.images), batch.labels
