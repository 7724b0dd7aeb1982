"""A module for Lightning's loop that keeps what it is shown."""

from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from phantomgrad_suite.data.images.base import ImageBatch


class Recorder(LightningModule):
    """One parameter that is trained; ``seen`` are the batches by part."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.seen: dict[str, list[ImageBatch]] = {"train": [], "test": []}

    def training_step(self, batch: ImageBatch, batch_idx: int) -> Tensor:
        self.seen["train"].append(batch)
        return (self.scale * batch.images.mean() - batch.labels.float().mean()).square()

    def validation_step(self, batch: ImageBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.seen["test"].append(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def images(self, part: str = "train") -> Tensor:
        """All images of a part, in the order in which they came."""
        return torch.cat([batch.images for batch in self.seen[part]])


def trainer(epochs: int, **more: Any) -> Trainer:
    """A silent trainer on the CPU."""
    return Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **more,
    )
