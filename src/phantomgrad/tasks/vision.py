"""Classification of images."""

from __future__ import annotations

from torch import Tensor

from phantomgrad.data.digits import ImageBatch
from phantomgrad.tasks.classification import Classification


class ImageClassification(Classification):
    """One label for each image of a batch."""

    def scored(self, batch: ImageBatch, part: str) -> tuple[Tensor, Tensor]:
        """Score every image."""
        return self.model(batch.images), batch.labels
