"""The base class of image data sets: batches of bytes, normalised on the device."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from lightning.pytorch.overrides.distributed import UnrepeatedDistributedSampler
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from phantomgrad.checks import check_at_least
from phantomgrad_suite.checkpoint.loaders import ResumableLoader
from phantomgrad_suite.data.base import DataModule, Share, Synthetic
from phantomgrad_suite.runs.errors import MissingDataError, UserError


class ImageBatch(NamedTuple):
    """Images, ``(B, channels, H, W)``, and their classes, ``(B,)``."""

    images: Tensor
    labels: Tensor


class ImageSet(TensorDataset):
    """Images and labels in memory; a batch is one slice of each, not a list of samples."""

    def __getitems__(self, indices: list[int]) -> ImageBatch:
        return ImageBatch(*(tensor[indices] for tensor in self.tensors))


class ImageData(DataModule):
    """Colour images whose batches are bytes, which the device normalises."""

    in_channels = 3
    mean: ClassVar[tuple[float, float, float]]  # of each channel, for pixels from 0 to 1
    deviation: ClassVar[tuple[float, float, float]]
    side: ClassVar[int]  # of an image as the network sees it, in pixels
    all_classes: ClassVar[int]  # of the whole data set

    def augmented(self, images: Tensor) -> Tensor:
        """Augment training images on the device, ``(B, 3, H, W)`` bytes, before normalisation."""
        return images

    def on_after_batch_transfer(
        self, batch: ImageBatch | Sequence[Tensor], dataloader_idx: int
    ) -> ImageBatch:
        trainer, (images, labels) = self.trainer, batch
        images = self.augmented(images) if trainer and trainer.training else images
        batch = ImageBatch(normalized(images, self.mean, self.deviation), labels)
        return trainer.precision_plugin.convert_input(batch) if trainer else batch

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        batch_size, classes = settings["batch_size"], cls.all_classes
        check_at_least("dataset.batch_size", batch_size, 1)

        def draw(generator: torch.Generator) -> ImageBatch:
            side = settings.get("resolution", cls.side)
            shape = (batch_size, 3, side, side)
            pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
            labels = torch.randint(classes, (batch_size,), generator=generator)
            return ImageBatch(normalized(pixels, cls.mean, cls.deviation), labels)

        return Synthetic(
            samples=batch_size,
            unit="images",
            draw=draw,
            sizes=lambda: {"in_channels": 3, "classes": classes},
        )

    def image_loader(
        self, data: Dataset[Any], batch_size: int, sampler: Any = None, **options: Any
    ) -> ResumableLoader:
        """Return a loader; without ``sampler`` in order, each image to exactly one process."""
        trainer = self.trainer
        return ResumableLoader(
            data,
            batch_size=batch_size,
            sampler=sampler or in_order(data, batch_size, self.share),
            pin_memory=bool(trainer and trainer.strategy.root_device.type == "cuda"),
            **options,
        )


def in_order(data: Dataset[Any], batch_size: int, share: Share) -> UnrepeatedDistributedSampler:
    """Return every n-th index, in order, so that n processes see each sample exactly once."""
    size = len(data)  # type: ignore[arg-type]
    least, most = size // share.processes, -(-size // share.processes)
    if not least or -(-least // batch_size) != -(-most // batch_size):
        raise UserError(
            f"runtime.dataset.test_batch_size={batch_size} gives {share.processes} processes "
            f"different numbers of batches of {size} samples: "
            "choose another size or fewer processes"
        )
    return UnrepeatedDistributedSampler(
        data, num_replicas=share.processes, rank=share.process, shuffle=False
    )


def normalized(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Return bytes, ``(B, C, H, W)``, scaled to [0, 1] and standardised per channel."""
    dtype = torch.get_default_dtype()
    center, scale = _on(images.device, dtype, mean), _on(images.device, dtype, deviation)
    return images.to(dtype).div_(255).sub_(center).div_(scale)


@cache  # since every copy to a device would wait for it
def _on(device: torch.device, dtype: torch.dtype, values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)


def read_image(path: str) -> Any:
    """Return the image in a file, in RGB; raise :class:`UserError` if that fails."""
    from torchvision.datasets.folder import pil_loader

    try:
        return pil_loader(path)
    except Exception as error:  # Pillow has many: SyntaxError, DecompressionBombError ...
        raise UserError(f"{path} cannot be read as an image ({error})") from error


def open_folder(root: Path, part: str, name: str) -> Any:
    """Return torchvision's ``ImageFolder``; ``fetch_data.py`` knows the data as ``name``."""
    from torchvision.datasets import ImageFolder

    if not (root / part).is_dir():
        raise MissingDataError(
            f"{root} has no folder {part}: `python scripts/fetch_data.py {name}` explains how to "
            "get the images; or set runtime.dataset.root"
        )
    try:
        return ImageFolder(str(root / part))
    except FileNotFoundError as error:
        reason = str(error).rstrip(". ")
        raise UserError(
            f"{root / part} must contain one folder of images for each class ({reason})"
        ) from error
