"""The map of MDEQ: block, fusion, post-fusion.

A state is a tuple of images, scale i being ``(B, C_i, H / 2^i, W / 2^i)``.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad.nn import VariationalDropout, reduce_normed


class NormedConv2d(nn.Conv2d):
    r"""A convolution without bias whose kernels are :math:`g \, v / \|v\|`, channel by channel."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, device: Any = None
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            padding=kernel_size // 2,
            bias=False,
            device=device,
        )
        weight_norm(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_normed(self, self.in_channels, self.out_channels, self.kernel_size[0])


class Block(nn.Module):
    r"""The residual block of one scale.

    .. math:: y = \mathrm{GN}(\mathrm{ReLU}(\mathrm{GN}(
              \mathrm{Drop}(W_2 * \mathrm{ReLU}(\mathrm{GN}(W_1 * z))) + u) + z))

    The kernels are 3 x 3, weight-normed, from C to ``expansion`` C channels and back. Dropout drops
    whole channels, with one mask per forward pass of the model.
    """

    def __init__(self, channels: int, expansion: int, groups: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = NormedConv2d(channels, expansion * channels, 3)
        self.norm1 = nn.GroupNorm(groups, expansion * channels)
        self.conv2 = NormedConv2d(expansion * channels, channels, 3)
        self.dropout = VariationalDropout(dropout, shared_dims=(2, 3))
        self.norm2 = nn.GroupNorm(groups, channels)
        self.norm3 = nn.GroupNorm(groups, channels)

    def forward(self, z: Tensor, u: Tensor | None = None) -> Tensor:
        """Return y from the state and the optional injection, all ``(B, C, H, W)``."""
        a = self.norm1(self.conv1(z)).relu_()  # (B, expansion C, H, W)
        b = self.dropout(self.conv2(a))  # (B, C, H, W)
        if u is not None:
            b = b.add_(u)
        c = self.norm2(b).add_(z)
        return self.norm3(c.relu_())  # type: ignore[no-any-return]


class Fusion(nn.Module):
    r"""The exchange between scales, :math:`s_i = y_i + \sum_{j \ne i} T_{j \to i}(y_j)`.

    From coarse to fine, T is a 1 x 1 convolution, GN and nearest-neighbour upsampling; from fine to
    coarse, one 3 x 3 convolution of stride 2 and GN for each halving, with a ReLU in between.
    """

    def __init__(self, channels: Sequence[int], groups: int) -> None:
        super().__init__()
        self.paths = nn.ModuleDict(
            {
                f"{j}_to_{i}": _transform(source, target, i - j, groups)
                for (j, source), (i, target) in itertools.permutations(enumerate(channels), 2)
            }
        )

    def forward(self, y: Sequence[Tensor]) -> list[Tensor]:
        """Return s, shaped like y; new tensors if there are several scales."""
        return [self._gather(y, i) for i in range(len(y))]

    def _gather(self, y: Sequence[Tensor], i: int) -> Tensor:
        total = y[i]
        for j in range(i):
            total = self._path(y, j, i).add_(total)
        if i + 1 < len(y):
            total = self._from_coarser(y, i).add_(total)
        return total

    def _from_coarser(self, y: Sequence[Tensor], i: int) -> Tensor:
        """Return the sum of all coarser scales, upsampling once per scale (Horner's rule)."""
        total = self._path(y, len(y) - 1, i)
        for j in reversed(range(i + 1, len(y) - 1)):
            total = F.interpolate(total, scale_factor=2).add_(self._path(y, j, i))
        return F.interpolate(total, scale_factor=2)

    def _path(self, y: Sequence[Tensor], j: int, i: int) -> Tensor:
        """Return scale j transformed for scale i; not yet upsampled if j is coarser."""
        return self.paths[f"{j}_to_{i}"](y[j])  # type: ignore[no-any-return]


def _transform(source: int, target: int, halvings: int, groups: int) -> nn.Sequential:
    """Return the layers of one path; a negative number of halvings is an upsampling."""
    if halvings < 0:
        return nn.Sequential(nn.Conv2d(source, target, 1, bias=False), nn.GroupNorm(groups, target))
    widths = [source] * halvings + [target]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [
            nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
            nn.GroupNorm(groups, after),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers[:-1])


class MDEQCell(nn.Module):
    r"""The map :math:`f(z, u)` of an MDEQ: a block per scale, fusion, post-fusion.

    .. math:: y_i = \mathrm{block}_i(z_i, u_i), \quad s = \mathrm{fusion}(y), \quad
              f_i = \mathrm{GN}(W_i * \mathrm{ReLU}(s_i))

    The last kernels are 1 x 1 and weight-normed, the last GN have half the groups. Only the finest
    scale has an injection, :math:`u_0 = u`.

    ``channels`` are the C_i from fine to coarse, multiples of ``groups``, which is even.
    """

    def __init__(
        self, channels: Sequence[int], *, expansion: int = 5, groups: int = 8, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(c, expansion, groups, dropout) for c in channels)
        self.fusion = Fusion(channels, groups)
        self.post = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(inplace=True), NormedConv2d(c, c, 1), nn.GroupNorm(groups // 2, c)
            )
            for c in channels
        )

    def forward(self, z: Sequence[Tensor], u: Tensor) -> tuple[Tensor, ...]:
        """Return the next state from ``z`` and the injection ``u``, shaped like ``z[0]``."""
        injections = [u, *[None] * (len(z) - 1)]
        y = [block(*scale) for block, *scale in zip(self.blocks, z, injections, strict=True)]
        return tuple(post(s) for post, s in zip(self.post, self.fusion(y), strict=True))
