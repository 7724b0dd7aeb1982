"""One of two processes that train on halves of a batch; a module, so that spawn finds it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from problems import TanhCell
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from phantomgrad import (
    DEQ,
    AdaptiveDamping,
    Broyden,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import MDEQ

ADJOINT = Broyden(max_evaluations=60, tol=1e-12)
ESTIMATORS: dict[str, GradientEstimator] = {
    "implicit": ImplicitGradient(solver=ADJOINT),
    "implicit, at the image": ImplicitGradient(solver=ADJOINT, at="image"),
    "unrolled": UnrolledPhantomGradient(5, 0.5),
    "neumann": NeumannPhantomGradient(5, 0.5),
    "neumann, of the image": NeumannPhantomGradient(5, 0.5, "image"),
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
    _join(rank, folder)
    half = global_batch().chunk(2)[rank]
    found = {
        name: gradients(DistributedDataParallel(Classifier(estimator)), half)
        for name, estimator in ESTIMATORS.items()
    }
    _leave(found, rank, folder)


def follow(rank: int, folder: str) -> None:
    """Join the group, measure a spectral radius of 2 or 3, and save what is made of it."""
    _join(rank, folder)
    damping = AdaptiveDamping(every=1, iterations=20)
    damping.observe(lambda z: -(rank + 2) * z, torch.randn(2, 3))
    _leave({"radius": damping.radius}, rank, folder)


class Multiscale(nn.Module):
    """An MDEQ of two small scales, contractive, solved for its equilibrium or unrolled.

    Its normalisations of the batch use the statistics of what a process sees, or fixed ones.
    """

    def __init__(self, mode: str, batch_statistics: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self._unrolled = 3 if mode == "pretraining" else 0
        self.model = MDEQ(
            3,
            4,
            Broyden(max_evaluations=60, tol=1e-12),
            ESTIMATORS.get(mode, ESTIMATORS["unrolled"]),
            channels=(4, 6),
            head_channels=(2, 3),
            features=5,
            expansion=2,
            groups=2,
        )
        with torch.no_grad():
            for post in self.model.deq.cell.post:
                post[-1].weight.mul_(0.03)
                post[-1].bias.normal_()
        self.model.train(batch_statistics)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.model(images, unrolled=self._unrolled)
        return out


MODES = (*ESTIMATORS, "pretraining")


def global_images() -> Tensor:
    """The same four images in every process."""
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(4))


def train_mdeq_half(rank: int, folder: str) -> None:
    """The same for MDEQ, in every mode."""
    _join(rank, folder)
    half = global_images().chunk(2)[rank]
    found = {
        (mode, own): gradients(DistributedDataParallel(Multiscale(mode, own)), half)
        for mode in MODES
        for own in (True, False)
    }
    _leave(found, rank, folder)


def _join(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )


def _leave(found: object, rank: int, folder: str) -> None:
    torch.save(found, Path(folder) / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()
