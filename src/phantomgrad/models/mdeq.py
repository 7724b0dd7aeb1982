"""MDEQ, the multiscale deep equilibrium model (Bai et al., 2020), as the paper trains it.

The file follows the model: the map (block, fusion, post-fusion), the head, the classifier. A state
is a tuple of images, scale i being ``(B, C_i, H / 2^i, W / 2^i)``.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Self

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
from phantomgrad.nn import NormedConv2d, VariationalDropout
from phantomgrad.solvers import Solver


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

    @classmethod
    def tiny(
        cls, solver: Solver, gradient: GradientEstimator, classes: int = 10, **settings: Any
    ) -> Self:
        """Return the paper's MDEQ-Tiny for CIFAR-10, "170K": two scales, 158,986 parameters."""
        sizes = {"channels": (24, 24), "head_channels": (8, 16), "features": 200}
        return cls(3, classes, solver, gradient, **{**sizes, "injection": False, **settings})

    @classmethod
    def large(
        cls, solver: Solver, gradient: GradientEstimator, classes: int = 10, **settings: Any
    ) -> Self:
        """Return the paper's MDEQ-Large for CIFAR-10, "10M": four scales, 11,098,398 parameters."""
        sizes = {
            "channels": (32, 64, 128, 256),
            "head_channels": (14, 28, 56, 112),
            "features": 1680,
        }
        return cls(3, classes, solver, gradient, **{**sizes, **settings})

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
