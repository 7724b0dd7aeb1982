"""A damping that follows the spectral radius of the map through training."""

import math

import torch
from torch import Tensor, distributed, nn
from torch.autograd.graph import saved_tensors_hooks

from phantomgrad.checks import check_at_least, check_rate
from phantomgrad.jacobian import NO_JACOBIAN, spectral_radius
from phantomgrad.solvers import Map


class AdaptiveDamping(nn.Module):
    r"""The damping of a phantom gradient, from the spectral radius of the map during training.

    .. math:: \lambda = \min(1, 1 / \bar\rho), \qquad
              \bar\rho \leftarrow m \bar\rho + (1 - m)\, \rho(\partial F / \partial h)

    A phantom gradient takes it in place of a number. Where :math:`\rho > 1` because of eigenvalues
    with a real part below 1, a damping near :math:`1 / \rho` lets the Neumann series converge or
    grow slowly (Geng et al., 2021, use it for language models); against a real part of 1 or more no
    :math:`\lambda` helps. Like the running statistics of batch normalisation, the radius is
    measured in training, used in both modes, and saved with the model.

    Each measurement takes the largest radius over the batch and over the processes of a distributed
    run, all of which must call the layer equally often; one that is not finite is skipped. The
    power method is seeded with the number of the pass, so that a resumed run measures the same. A
    pass that ``torch.utils.checkpoint`` repeats counts twice.

    Args:
        every: number of training passes between two measurements; the first pass makes one.
        iterations: of the power method, each a vector-Jacobian product.
        momentum: m, in [0, 1).
    """

    radius: Tensor
    """The averaged radius; ``nan`` before the first measurement."""
    passes: Tensor
    """Number of training passes so far."""

    def __init__(self, *, every: int = 100, iterations: int = 10, momentum: float = 0.9) -> None:
        super().__init__()
        check_at_least("every", every, 1)
        check_at_least("iterations", iterations, 1)
        check_rate("momentum", momentum)
        self.every, self.iterations, self.momentum = every, iterations, momentum
        # Buffers, so that copies such as an exponential moving average of the model follow them.
        self.register_buffer("radius", torch.tensor(math.nan))
        self.register_buffer("passes", torch.tensor(0))

    @property
    def value(self) -> float:
        r"""The current :math:`\lambda`; 1 before the first measurement."""
        if torch.compiler.is_compiling():
            raise RuntimeError(NO_JACOBIAN)
        radius = float(self.radius)  # waits for an accelerator
        return 1.0 if math.isnan(radius) else 1.0 / max(radius, 1.0)

    def observe(self, f: Map, z: Tensor) -> None:
        """Count a training pass, and measure at its equilibrium ``z`` if a measurement is due."""
        if torch.compiler.is_compiling():
            raise RuntimeError(NO_JACOBIAN)
        passes = int(self.passes)
        if passes % self.every == 0:
            radius = self._measure(f, z, passes)
            if math.isfinite(radius):
                before = float(self.radius)
                before = radius if math.isnan(before) else before
                self.radius.fill_(radius + self.momentum * (before - radius))
        self.passes.add_(1)

    def _measure(self, f: Map, z: Tensor, seed: int) -> float:
        generator = torch.Generator(device=z.device).manual_seed(seed)
        with saved_tensors_hooks(_same, _same):  # hidden from checkpointing, which counts tensors
            radii = spectral_radius(f, z, iterations=self.iterations, generator=generator)
        largest = radii.float().max()
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
        return float(largest)

    def extra_repr(self) -> str:
        """Return settings and radius."""
        settings = f"every={self.every}, iterations={self.iterations}, momentum={self.momentum}"
        return f"{settings}, radius={float(self.radius):.4g}"


def _same(tensor: Tensor) -> Tensor:
    return tensor
