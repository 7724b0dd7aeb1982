"""A small convolutional equilibrium model for images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.checks import check_at_least
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.solvers import Solver


class ConvolutionalCell(nn.Module):
    r"""The map :math:`z \mapsto \mathrm{GN}(\mathrm{ReLU}(x + W_2 * \mathrm{ReLU}(W_1 * z)))`.

    The kernels are 3 x 3 with biases. Written as matrices, ``(C, 9 C)``, :meth:`project_` keeps
    them in :math:`\|W\|_2 \le \kappa`. This does not prove a contraction, as GN divides by the
    deviation, but the spectral radius stays below one in training. It would not with a second GN
    after the first convolution, as in MDEQ's block, which undoes the bound.
    """

    def __init__(self, channels: int, groups: int, kappa: float) -> None:
        super().__init__()
        self.kappa = kappa
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(groups, channels)
        self.project_()

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the next state from ``z`` and the injection ``x``, all ``(B, C, H, W)``."""
        branch = self.second(self.first(z).relu_())
        return self.norm(branch.add_(x).relu_())  # type: ignore[no-any-return]

    @torch.no_grad()
    def project_(self) -> None:
        """Scale kernels above the bound back to it."""
        for convolution in (self.first, self.second):
            kernel = convolution.weight.flatten(1)
            kernel = kernel.to(torch.promote_types(kernel.dtype, torch.float32))  # for the norm
            size = torch.linalg.matrix_norm(kernel, ord=2)
            convolution.weight.mul_((self.kappa / size).clamp(max=1))


class ImageClassifier(nn.Module):
    r"""A convolution, one equilibrium layer, average pooling and a linear layer.

    .. math:: x = \mathrm{GN}(W_0 * u), \quad z^* = f(z^*, x), \quad
              p = \mathrm{softmax}(V \, \mathrm{pool}(z^*) + b) ,

    with ``f`` a :class:`ConvolutionalCell`, after Bai et al. (2020), at one resolution.

    Args:
        in_channels, classes: channels of the images u, and number of classes.
        solver, gradient: of the :class:`phantomgrad.DEQ`.
        channels: C, the width of the state.
        groups: of the group normalisation; a divisor of ``channels``.
        kappa: see :class:`ConvolutionalCell`.
        pooled: height and width after pooling.
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        channels: int = 16,
        groups: int = 4,
        kappa: float = 0.7,
        pooled: int = 4,
    ) -> None:
        super().__init__()
        check_at_least("groups", groups, 1)
        check_at_least("pooled", pooled, 1)
        if channels < 1 or channels % groups:
            raise ValueError(f"channels must be a multiple of groups = {groups}, got {channels}")
        if not kappa > 0:
            raise ValueError(f"kappa must be positive, got {kappa}")
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)
        self.deq = DEQ(ConvolutionalCell(channels, groups, kappa), solver, gradient)
        self.pooled = pooled
        self.output = nn.Linear(channels * pooled**2, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return log-probabilities, ``(B, classes)``, of images ``(B, in_channels, H, W)``."""
        x = self.norm(self.stem(images))  # (B, C, H, W)
        z, _ = self.deq(x)  # (B, C, H, W)
        features = F.adaptive_avg_pool2d(z, self.pooled).flatten(1)  # (B, C pooled^2)
        return F.log_softmax(self.output(features), dim=1)

    def project_(self) -> None:
        """Restore the bound on the kernels after an optimizer step."""
        self.deq.cell.project_()  # type: ignore[operator]
