"""A module for Lightning's loop that keeps what it is shown."""

from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from phantomgrad_suite.data.images.base import ImageBatch


class Recorder(LightningModule):
    """One parameter that is trained; ``seen`` are the batches by part.

    Args:
        folder: where each process of a distributed run saves what it has seen.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.seen: dict[str, list[ImageBatch]] = {"train": [], "test": []}
        self._folder = folder

    def training_step(self, batch: ImageBatch, batch_idx: int) -> Tensor:
        self.seen["train"].append(batch)
        return (self.scale * batch.images.mean() - batch.labels.float().mean()).square()

    def validation_step(self, batch: ImageBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.seen["test"].append(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_fit_end(self) -> None:
        if self._folder is not None:
            seen = {part: list(map(tuple, batches)) for part, batches in self.seen.items()}
            torch.save(seen, self._folder / f"seen{self.global_rank}.pt")

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
