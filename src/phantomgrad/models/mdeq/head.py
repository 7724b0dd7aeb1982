"""The head: logits from the equilibrium of every scale."""

import itertools
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

_EXPANSION = 4


def convolution(
    source: int,
    target: int,
    kernel: int,
    stride: int = 1,
    *,
    bias: bool = False,
    affine: bool = True,
) -> list[nn.Module]:
    """Return a padded convolution, BN and ReLU; only ``stride`` changes the resolution."""
    return [
        nn.Conv2d(source, target, kernel, stride, padding=kernel // 2, bias=bias),
        nn.BatchNorm2d(target, affine=affine),
        nn.ReLU(inplace=True),
    ]


class Bottleneck(nn.Module):
    """Convolutions with BN, 1 x 1, 3 x 3, 1 x 1, of h, h, 4 h channels, and a 1 x 1 shortcut.

    Only the BN of the shortcut has affine parameters.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        out_channels = _EXPANSION * width
        self.main = nn.Sequential(
            *convolution(in_channels, width, 1, affine=False),
            *convolution(width, width, 3, affine=False),
            *convolution(width, out_channels, 1, affine=False)[:-1],
        )
        self.shortcut = nn.Sequential(*convolution(in_channels, out_channels, 1)[:-1])

    def forward(self, z: Tensor) -> Tensor:
        """Return features ``(B, 4 h, H, W)`` of ``(B, C, H, W)``."""
        return self.main(z).add_(self.shortcut(z)).relu_()  # type: ignore[no-any-return]


class Head(nn.Module):
    r"""Merge the scales from fine to coarse, pool, classify.

    With a :class:`Bottleneck` :math:`B_i` per scale and :math:`D_i` a 3 x 3 convolution of stride
    2, BN and ReLU,

    .. math:: t_0 = B_0(z_0), \quad t_{i+1} = B_{i+1}(z_{i+1}) + D_i(t_i), \quad
              V \, \mathrm{pool}(\mathrm{ReLU}(\mathrm{BN}(W * t_{n-1}))) + b .

    Scale i has C_i = ``channels[i]`` channels, and its bottleneck h_i = ``widths[i]``.
    """

    def __init__(
        self, channels: Sequence[int], widths: Sequence[int], features: int, classes: int
    ) -> None:
        super().__init__()
        self.bottlenecks = nn.ModuleList(
            Bottleneck(c, h) for c, h in zip(channels, widths, strict=True)
        )
        merged = [_EXPANSION * h for h in widths]
        self.downs = nn.ModuleList(
            nn.Sequential(*convolution(fine, coarse, 3, stride=2, bias=True))
            for fine, coarse in itertools.pairwise(merged)
        )
        self.final = nn.Sequential(*convolution(merged[-1], features, 1, bias=True))
        self.output = nn.Linear(features, classes)

    def forward(self, z: Sequence[Tensor]) -> Tensor:
        """Return logits, ``(B, classes)``, of states ``(B, C_i, H / 2^i, W / 2^i)``."""
        t = self.bottlenecks[0](z[0])  # (B, 4 h_0, H, W)
        for bottleneck, down, state in zip(self.bottlenecks[1:], self.downs, z[1:], strict=True):
            t = bottleneck(state) + down(t)  # (B, 4 h_i, H / 2^i, W / 2^i)
        pooled = F.adaptive_avg_pool2d(self.final(t), 1).flatten(1)  # (B, features)
        return self.output(pooled)  # type: ignore[no-any-return]
