"""The stem: an image becomes the injection of the finest scale."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def make_stem(
    in_channels: int, channels: int, strides: Sequence[int], injection: bool
) -> nn.Sequential:
    """Return the convolutions, each followed by BN and ReLU, that make the injection of an image.

    Two are 3 x 3. The last one is 1 x 1 and optional: the Tiny model goes without, as its injection
    was kept plain against overfitting (Bai et al., 2020).

    Args:
        in_channels: of the images.
        channels: width of the injection, that of the finest scale.
        strides: of the two 3 x 3 convolutions.
        injection: whether there is the 1 x 1 convolution.
    """
    first, second = strides
    layers = [
        *_convolution(in_channels, channels, 3, first),
        *_convolution(channels, channels, 3, second),
    ]
    if injection:
        layers += _convolution(channels, channels, 1, 1)
    return nn.Sequential(*layers)


def _convolution(in_channels: int, channels: int, kernel: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(in_channels, channels, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    ]
