"""The order in which MDEQ's images and kernels lie in memory: that of the device's kernels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


def image_format(device: torch.device) -> torch.memory_format:
    """Return the order in which ``device`` keeps images all through the map.

    On the CPU that is channels last. On CUDA, torch's group normalisation returns images channels
    first whatever it is given (up to torch 2.14): between two convolutions that are channels last,
    each of them would have its input and its output transposed.
    """
    return torch.channels_last if device.type == "cpu" else torch.contiguous_format


class LikeImages(nn.Module):
    """A parametrization that changes the order of a kernel in memory, and no value of it."""

    def forward(self, kernel: Tensor) -> Tensor:
        """Return the kernel in the order of the images of its device."""
        return kernel.contiguous(memory_format=image_format(kernel.device))

    def right_inverse(self, kernel: Tensor) -> Tensor:
        """Return the kernel as it is."""
        return kernel


def lay_like_images(module: nn.Module) -> None:
    """Lay the kernels of ``module`` out like the images of their device, once for a whole solve.

    A convolution of images in another order than its kernel copies one of them, at every call.
    Names, shapes and values of the parameters stay, and so do all results, bit by bit. Kernels
    with weight norm follow their device from then on; the others want another call.
    """
    for child in module.modules():
        if not isinstance(child, nn.Conv2d) or child.kernel_size == (1, 1):
            continue
        if not parametrize.is_parametrized(child, "weight"):
            child.to(memory_format=image_format(child.weight.device))
        elif not any(isinstance(part, LikeImages) for part in child.modules()):
            parametrize.register_parametrization(child, "weight", LikeImages())
