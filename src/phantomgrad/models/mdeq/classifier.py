"""MDEQ for the classification of images, and the memory format of its images and kernels."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from phantomgrad.checks import (
    ShapeError,
    check_at_least,
    check_integers,
    check_not_negative,
    check_rate,
)
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.models.mdeq.cell import MDEQCell, NormedConv2d
from phantomgrad.models.mdeq.head import Head, convolution
from phantomgrad.solvers import Solver


class MDEQ(nn.Module):
    r"""The multiscale deep equilibrium model (Bai et al., 2020).

    .. math:: u = \mathrm{stem}(x), \quad z^* = f(z^*, u), \quad
              p = \mathrm{softmax}(\mathrm{head}(z^*)) ,

    with ``f`` an :class:`MDEQCell` on n scales, solved from zero. The stem consists of two 3 x 3
    convolutions and an optional 1 x 1 convolution, each followed by BN and ReLU.

    Args:
        in_channels, classes: channels of the images x, and number of classes.
        solver, gradient: of the :class:`phantomgrad.DEQ`.
        channels: width of each scale, from fine to coarse; multiples of ``groups``.
        head_channels: width of the head's bottleneck at each scale.
        features: number of channels that the head pools.
        stem_strides: of the two 3 x 3 convolutions of the stem.
        injection: whether the stem ends with the 1 x 1 convolution; the Tiny model has none.
        expansion, groups, dropout: see :class:`MDEQCell` and its ``Block``.
        init_std: standard deviation of the initial kernels without weight norm and of their biases
            (on CIFAR); ``None`` keeps torch's initialisation (on ImageNet).
        channels_last: keep images, states and kernels channels last in memory on the CPU. It is
            faster in float32 and slower under autocast to bfloat16.
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        channels: Sequence[int],
        head_channels: Sequence[int],
        features: int,
        stem_strides: Sequence[int] = (1, 1),
        injection: bool = True,
        expansion: int = 5,
        groups: int = 8,
        dropout: float = 0.0,
        init_std: float | None = 0.01,
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        check_at_least("features", features, 1)
        check_at_least("expansion", expansion, 1)
        check_rate("dropout", dropout)
        _check_scales(channels, head_channels, groups)
        check_integers("stem_strides", stem_strides)
        if len(stem_strides) != 2 or any(s < 1 for s in stem_strides):
            raise ValueError(f"stem_strides must be two positive numbers, got {list(stem_strides)}")
        self.in_channels = in_channels
        self.channels = tuple(channels)
        self.channels_last = channels_last
        first, second = stem_strides
        self.stem = nn.Sequential(
            *convolution(in_channels, channels[0], 3, first),
            *convolution(channels[0], channels[0], 3, second),
            *(convolution(channels[0], channels[0], 1) if injection else ()),
        )
        cell = MDEQCell(channels, expansion=expansion, groups=groups, dropout=dropout)
        self.deq = DEQ(cell, solver, gradient)
        self.head = Head(channels, head_channels, features, classes)
        if init_std is not None:
            self._initialise(init_std)
        if channels_last:  # last, since random numbers are drawn in the order of memory
            format_kernels_(self)

    def memory_format(self, device: torch.device) -> torch.memory_format:
        """Return the memory format of images and states on ``device``."""
        return image_format(device) if self.channels_last else torch.contiguous_format

    def forward(self, images: Tensor, *, unrolled: int = 0) -> Tensor:
        """Return log-probabilities, ``(B, classes)``, of images ``(B, in_channels, H, W)``.

        ``unrolled`` are steps of :meth:`DEQ.unroll` (the pretraining stage); 0 is the equilibrium.
        """
        check_at_least("unrolled", unrolled, 0)
        u = self.inject(images)  # (B, C_0, H, W)
        z = self.start(u, images.dtype)  # (B, C_i, H / 2^i, W / 2^i)
        z = self.deq.unroll(z, unrolled, u) if unrolled else self.deq(u, z0=z)[0]
        logits = self.head(z)  # (B, classes)
        dtype = torch.promote_types(logits.dtype, torch.float32)  # logits may be bfloat16
        return F.log_softmax(logits, dim=1, dtype=dtype)

    def inject(self, images: Tensor) -> Tensor:
        """Return the injection, ``(B, C_0, H, W)``, of images."""
        if images.dim() != 4 or images.shape[1] != self.in_channels:
            raise ShapeError(
                f"images must be (B, {self.in_channels}, H, W), got {tuple(images.shape)}"
            )
        images = images.contiguous(memory_format=self.memory_format(images.device))
        return self.stem(images)  # type: ignore[no-any-return]

    def start(self, u: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """Return the zero state for an injection ``u``."""
        batch, _, height, width = u.shape
        coarsest = 2 ** (len(self.channels) - 1)
        if height % coarsest or width % coarsest:
            raise ShapeError(
                f"images must leave the stem with sides that are multiples of {coarsest}, for "
                f"{len(self.channels)} scales, got {height} x {width}"
            )
        return tuple(
            torch.empty(
                (batch, c, height >> i, width >> i),
                dtype=dtype or u.dtype,
                device=u.device,
                memory_format=self.memory_format(u.device),
            ).zero_()
            for i, c in enumerate(self.channels)
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # e.g. a move to CUDA
        if self.channels_last:
            format_kernels_(self)
        return self

    @torch.no_grad()
    def _initialise(self, std: float) -> None:
        check_not_negative("init_std", std)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not isinstance(module, NormedConv2d):
                for parameter in module.parameters():
                    parameter.normal_(0, std)


def _check_scales(channels: Sequence[int], head_channels: Sequence[int], groups: int) -> None:
    check_at_least("groups", groups, 2)
    check_integers("channels", channels)
    check_integers("head_channels", head_channels)
    if groups % 2:
        raise ValueError(f"groups must be even, got {groups}")
    if not channels or any(c < 1 or c % groups for c in channels):
        raise ValueError(f"channels must be multiples of groups = {groups}, got {list(channels)}")
    if len(head_channels) != len(channels) or any(h < 1 for h in head_channels):
        raise ValueError(
            f"head_channels must be {len(channels)} positive widths, one for each of channels, "
            f"got {list(head_channels)}"
        )


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
