"""One of two processes that train a DEQ on halves of a batch; a module, so that spawn finds it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from phantomgrad import (
    DEQ,
    Broyden,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from problems import TanhCell

ESTIMATORS: dict[str, GradientEstimator] = {
    "implicit": ImplicitGradient(solver=Broyden(max_evaluations=60, tol=1e-12)),
    "unrolled": UnrolledPhantomGradient(5, 0.5),
    "neumann": NeumannPhantomGradient(5, 0.5),
}


class Classifier(nn.Module):
    """An injection, an equilibrium and a head."""

    def __init__(self, gradient: GradientEstimator) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.injection = nn.Linear(3, 4)
        self.deq = DEQ(TanhCell(), Broyden(max_evaluations=60, tol=1e-12), gradient)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        z, _ = self.deq(self.injection(x))
        out: Tensor = self.head(z)
        return out


def global_batch() -> Tensor:
    """The same eight samples in every process."""
    return torch.randn(8, 3, generator=torch.Generator().manual_seed(2))


def gradients(model: nn.Module, batch: Tensor) -> list[Tensor]:
    """The gradients of the mean square of the output, by parameter."""
    model(batch).square().mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def train_half(rank: int, folder: str) -> None:
    """Join the group, differentiate on one half of the batch, and save what DDP made of it."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    half = global_batch().chunk(2)[rank]
    found = {
        name: gradients(DistributedDataParallel(Classifier(estimator)), half)
        for name, estimator in ESTIMATORS.items()
    }
    torch.save(found, Path(folder) / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()
