"""A damping that follows the spectral radius of the map through training."""

import math
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.graph import saved_tensors_hooks

from phantomgrad.checks import check_at_least, check_rate
from phantomgrad.jacobian import check_recordable, spectral_radius
from phantomgrad.solvers import Map


class AdaptiveDamping(nn.Module):
    r"""The damping of a phantom gradient, from the spectral radius of the map during training.

    .. math:: \lambda = \min(1, 1 / \bar\rho), \qquad
              \bar\rho \leftarrow m \bar\rho + (1 - m)\, \rho(\partial F / \partial h)

    Where :math:`\rho > 1` because of eigenvalues with a real part below 1, a damping near
    :math:`1 / \rho` lets the Neumann series converge or grow slowly (Geng et al., 2021, use it for
    language models); against a real part of 1 or more no :math:`\lambda` helps. An estimator takes
    it in place of a number. Like the running statistics of batch normalisation, the radius is
    measured in training, used in both modes, and saved with the model.

    Each measurement takes the largest radius over the batch and over the processes of a distributed
    run, all of which must call the layer equally often; one that is not finite is skipped. The
    power method is seeded with the number of the pass, so that a resumed run measures the same.

    Args:
        every: number of training passes between two measurements; the first pass makes one.
        iterations: of the power method, each a vector-Jacobian product.
        momentum: m, in [0, 1).
    """

    def __init__(self, *, every: int = 100, iterations: int = 10, momentum: float = 0.9) -> None:
        super().__init__()
        check_at_least("every", every, 1)
        check_at_least("iterations", iterations, 1)
        check_rate("momentum", momentum)
        self.every, self.iterations, self.momentum = every, iterations, momentum
        # Python numbers instead of buffers: reading them does not wait for a device, and
        # Module.half() does not round them.
        self.radius: float | None = None
        """The averaged radius; ``None`` before the first measurement."""
        self.passes = 0
        """Number of training passes so far."""

    @property
    def value(self) -> float:
        r"""The current :math:`\lambda`; 1 before the first measurement."""
        return 1.0 if self.radius is None else 1.0 / max(self.radius, 1.0)

    def observe(self, f: Map, z: Tensor) -> None:
        """Count a training pass, and measure at its equilibrium ``z`` if a measurement is due."""
        check_recordable()
        if torch._C._current_graph_task_id() != -1:  # checkpointing repeats a pass in the backward
            if not self.passes:
                raise RuntimeError(
                    "AdaptiveDamping must measure in a forward pass before it is used in a "
                    "backward pass: give checkpoint(...) use_reentrant=False"
                )
            return
        if self.passes % self.every == 0:
            radius = self._measure(f, z)
            if math.isfinite(radius):
                old = radius if self.radius is None else self.radius
                self.radius = radius + self.momentum * (old - radius)
        self.passes += 1

    def _measure(self, f: Map, z: Tensor) -> float:
        generator = torch.Generator(device=z.device).manual_seed(self.passes)
        with saved_tensors_hooks(_same, _same):  # hidden from checkpointing, which counts tensors
            radii = spectral_radius(f, z, iterations=self.iterations, generator=generator)
        # An empty batch of one process must not stop the others.
        largest = torch.cat([radii.float(), radii.new_full((1,), -math.inf).float()]).max()
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
        return float(largest)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A checkpoint of a layer with a fixed damping has no state: the measurements start anew.
        state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def get_extra_state(self) -> Tensor:
        """Return the radius (``nan`` before the first measurement) and the passes."""
        radius = math.nan if self.radius is None else self.radius
        return torch.tensor([radius, self.passes], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Continue from the radius and the passes of a checkpoint."""
        radius, passes = state.tolist()
        self.radius, self.passes = None if math.isnan(radius) else radius, int(passes)

    def extra_repr(self) -> str:
        """Return settings and radius."""
        settings = f"every={self.every}, iterations={self.iterations}, momentum={self.momentum}"
        return f"{settings}, radius={self.radius}"


def _same(tensor: Tensor) -> Tensor:
    return tensor
