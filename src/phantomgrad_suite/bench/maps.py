"""The maps that are solved."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad.solvers import Map


def elementwise_map(shape: tuple[int, ...], device: torch.device) -> Map:
    r"""Return :math:`f(z) = x + c \tanh z` with random x and c: cheap, nonlinear, contracting.

    The c spread over (-0.9, 0.9), so that no solver is done before its budget.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(device)
    c = torch.rand(shape, generator=generator).mul_(1.8).sub_(0.9).to(device)
    return lambda z: torch.addcmul(x, c, z.tanh())


class ConvolutionalCell(nn.Module):
    r"""The map :math:`z \mapsto \mathrm{ReLU}(W * z + x)` with a weight-normed 3 by 3 kernel W.

    Args:
        channels: of the state.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        nn.init.normal_(convolution.weight, std=0.4 / (3 * channels**0.5))
        self.convolution = weight_norm(convolution)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the next state, ``(B, C, H, W)``, as ``z`` and ``x``."""
        return F.relu_(self.convolution(z) + x)
