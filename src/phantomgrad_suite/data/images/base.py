"""What the image data sets share: batches, sets in memory, loaders, the way to the device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from lightning.pytorch.overrides.distributed import UnrepeatedDistributedSampler
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

from phantomgrad.checks import check_at_least
from phantomgrad_suite.data.base import LabelledData, Share, Synthetic
from phantomgrad_suite.data.loaders import ResumableLoader
from phantomgrad_suite.runs.errors import UserError


class ImageBatch(NamedTuple):
    """Some images.

    Attributes:
        images: ``(B, channels, H, W)``.
        labels: classes, ``(B,)``.
    """

    images: Tensor
    labels: Tensor


class ImageSet(TensorDataset):
    """Images and labels in memory; a batch is one slice of each, not a list of samples."""

    def __getitems__(self, indices: list[int]) -> ImageBatch:
        return ImageBatch(*(tensor[indices] for tensor in self.tensors))


class ImageData(LabelledData):
    """Colour images that travel as bytes; the device normalises them, a whole batch at a time.

    Attributes:
        mean: of each channel, for pixels from 0 to 1.
        deviation: of each channel, likewise.
        side: of an image as the network sees it, in pixels.
        all_classes: how many classes the whole data set has.
    """

    mean: ClassVar[tuple[float, float, float]]
    deviation: ClassVar[tuple[float, float, float]]
    side: ClassVar[int]
    all_classes: ClassVar[int]

    @property
    def in_channels(self) -> int:
        """Three: red, green, blue."""
        return 3

    @abstractmethod
    def augmented(self, images: Tensor) -> Tensor:
        """Return training images, ``(B, 3, H, W)`` bytes on the device, as the network sees them.

        Not yet normalised.
        """

    def on_after_batch_transfer(
        self, batch: ImageBatch | Sequence[Tensor], dataloader_idx: int
    ) -> ImageBatch:
        """Augment a batch of the training loop, and normalise any; it is a pair, of bytes."""
        trainer, (images, labels) = self.trainer, batch
        images = self.augmented(images) if trainer and trainer.training else images
        batch = ImageBatch(normalized(images, self.mean, self.deviation), labels)
        return trainer.precision_plugin.convert_input(batch) if trainer else batch

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        """Return random bytes, normalised as the images are, of random classes."""
        batch_size = settings["batch_size"]
        check_at_least("dataset.batch_size", batch_size, 1)

        def draw(generator: torch.Generator) -> ImageBatch:
            shape = (batch_size, 3, cls.side, cls.side)
            pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
            labels = torch.randint(cls.all_classes, (batch_size,), generator=generator)
            return ImageBatch(normalized(pixels, cls.mean, cls.deviation), labels)

        return Synthetic(
            samples=batch_size,
            unit="images",
            draw=draw,
            of_model={"in_channels": 3, "classes": cls.all_classes},
            of_task={"classes": cls.all_classes},
        )

    @property
    def pin_memory(self) -> bool:
        """Whether batches go to a CUDA device, which copies page-locked memory in passing."""
        return bool(self.trainer and self.trainer.strategy.root_device.type == "cuda")


def memory_loader(
    data: ImageSet, batch_size: int, sampler: Sampler[int], *, pin_memory: bool = False
) -> DataLoader[Any]:
    """Return a loader whose batches are slices of memory; the last one may be smaller."""
    return ResumableLoader(
        data, batch_size=batch_size, sampler=sampler, collate_fn=as_it_is, pin_memory=pin_memory
    )


def evaluated(
    data: Dataset[Any], batch_size: int, share: Share, name: str
) -> UnrepeatedDistributedSampler:
    """Return every n-th index, in order: over all processes, each image counts exactly once.

    Raises:
        UserError: the processes would need different numbers of batches, and wait for each other.
    """
    size = len(data)  # type: ignore[arg-type]
    least, most = size // share.processes, -(-size // share.processes)
    if not least or -(-least // batch_size) != -(-most // batch_size):
        raise UserError(
            f"{name} gives {share.processes} processes different numbers of batches of {size} "
            f"images: choose another than {batch_size}, or fewer processes"
        )
    return UnrepeatedDistributedSampler(
        data, num_replicas=share.processes, rank=share.process, shuffle=False
    )


def as_it_is(batch: Any) -> Any:
    """Return the batch: the set has made it whole."""
    return batch


def normalized(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Return bytes, ``(B, C, H, W)``, as floating numbers of that mean and deviation."""
    dtype = torch.get_default_dtype()
    center, scale = _on(images.device, dtype, mean), _on(images.device, dtype, deviation)
    return images.to(dtype).div_(255).sub_(center).div_(scale)


@cache
def _on(device: torch.device, dtype: torch.dtype, values: tuple[float, ...]) -> Tensor:
    """Return values per channel, ``(C, 1, 1)``; kept, as a copy to the device would wait for it."""
    return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)
