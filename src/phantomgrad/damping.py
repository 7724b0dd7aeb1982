"""The spectral radius of an equilibrium layer through training, and the damping it asks for."""

from __future__ import annotations

import math

import torch
from torch import Tensor, distributed, nn

from phantomgrad.gradients import AdaptiveDamping
from phantomgrad.jacobian import spectral_radius
from phantomgrad.solvers import Map


class DampingTracker(nn.Module):
    r"""Follows :math:`\bar\rho` of one layer, see :class:`phantomgrad.AdaptiveDamping`.

    A measurement is the largest radius over the samples of the batch, and over the processes of a
    distributed run, which so agree on it; they must then train the layer equally often. One that
    is not finite is left out. The power method starts from a generator of its own, seeded with the
    number of the pass: a run's dropout and shuffling never notice, and a resumed run repeats it.

    Both values are numbers, no buffers, so that no forward pass waits for a device to read them;
    they are saved with the state of the module, and keep their precision in a model of another.

    Args:
        settings: how often and how it is measured.
    """

    def __init__(self, settings: AdaptiveDamping) -> None:
        super().__init__()
        self.settings = settings
        self.radius: float | None = None
        """The averaged radius; ``None`` before the first measurement."""
        self.passes = 0
        """Training passes so far."""

    @property
    def damping(self) -> float:
        """The damping of the moment; 1 before the first measurement."""
        return 1.0 if self.radius is None else 1.0 / max(self.radius, 1.0)

    def follow(self, f: Map, z: Tensor) -> None:
        """Count a training pass, and measure at its equilibrium ``z`` where it is its turn."""
        if self.passes % self.settings.every == 0:
            self._average(self._measure(f, z))
        self.passes += 1

    def _measure(self, f: Map, z: Tensor) -> float:
        generator = torch.Generator(device=z.device).manual_seed(self.passes)
        radii = spectral_radius(f, z, iterations=self.settings.iterations, generator=generator)
        largest = radii.max().float()
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
        return float(largest)

    def _average(self, radius: float) -> None:
        if math.isfinite(radius):
            old = radius if self.radius is None else self.radius
            self.radius = radius + self.settings.momentum * (old - radius)

    def get_extra_state(self) -> Tensor:
        """Return radius (``nan`` before the first measurement) and passes."""
        radius = math.nan if self.radius is None else self.radius
        return torch.tensor([radius, self.passes], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Go on from the radius and the passes of a checkpoint."""
        radius, passes = state.tolist()
        self.radius, self.passes = None if math.isnan(radius) else radius, int(passes)

    def extra_repr(self) -> str:
        """Return what is followed, and how."""
        return f"{self.settings}, radius={self.radius}"
