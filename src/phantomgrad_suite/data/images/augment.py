"""Random crops and flips of a whole batch at once, on any device."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from phantomgrad_suite.data.base import Share


class Draws(NamedTuple):
    """The random choices for each image of a batch, ``(B,)`` each.

    Attributes:
        top: first row of the crop in the padded image.
        left: first column.
        flip: whether the crop is mirrored horizontally.
    """

    top: Tensor
    left: Tensor
    flip: Tensor


def draw(images: int, padding: int, share: Share) -> Draws:
    """Draw from torch's global generator on the CPU, whose state checkpoints keep.

    Every process draws for all processes and takes its own part. So the parts differ, yet the
    generators stay equal, and a checkpoint needs one state only.
    """
    top, left = torch.randint(2 * padding + 1, (2, share.processes, images))
    flip = torch.randint(2, (share.processes, images)).bool()
    return Draws(*(drawn[share.process] for drawn in (top, left, flip)))


def crop_and_flip(images: Tensor, draws: Draws, padding: int) -> Tensor:
    """Return crops of images ``(B, C, H, W)``, padded with zeros on every side, some mirrored."""
    batch, channels, height, width = images.shape
    top, left, flip = (d.to(images.device, non_blocking=True).unsqueeze(1) for d in draws)
    rows = top + torch.arange(height, device=images.device)  # (B, H)
    columns = torch.arange(width, device=images.device)
    columns = left + torch.where(flip, width - 1 - columns, columns)  # (B, W)
    pixels = rows.unsqueeze(2) * (width + 2 * padding) + columns.unsqueeze(1)  # (B, H, W)
    pixels = pixels.view(batch, 1, -1).expand(-1, channels, -1)
    return F.pad(images, [padding] * 4).flatten(2).gather(2, pixels).view(images.shape)
