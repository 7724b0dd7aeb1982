"""The memory format of MDEQ's images and kernels."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


def image_format(device: torch.device) -> torch.memory_format:
    """Return the memory format in which ``device`` keeps images throughout the map.

    On CUDA, torch's group normalisation always returns images channels first (up to torch 2.14).
    """
    return torch.channels_last if device.type == "cpu" else torch.contiguous_format


class _ImageFormat(nn.Module):
    """A parametrization that changes the memory format of a kernel, and none of its values."""

    def forward(self, kernel: Tensor) -> Tensor:
        return kernel.contiguous(memory_format=image_format(kernel.device))

    def right_inverse(self, kernel: Tensor) -> Tensor:
        return kernel


def format_kernels_(module: nn.Module) -> None:
    """Give the kernels of ``module`` the memory format of images on their device.

    A convolution whose kernel has another format than its images copies one of them at each call.
    Kernels with weight norm follow their device from then on; for the others, call this again.
    """
    for child in module.modules():
        if not isinstance(child, nn.Conv2d) or child.kernel_size == (1, 1):
            continue
        if not parametrize.is_parametrized(child, "weight"):
            child.to(memory_format=image_format(child.weight.device))
        elif not any(isinstance(part, _ImageFormat) for part in child.modules()):
            parametrize.register_parametrization(child, "weight", _ImageFormat())
