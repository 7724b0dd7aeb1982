"""One of two processes, each with half of a batch; a module, so that spawn finds it."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from methods import ESTIMATORS, Parts
from problems import TanhCell
from small_models import IMPLICIT, PHANTOM, mdeq
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad import DEQ, AdaptiveDamping, Broyden, GradientEstimator, ImplicitGradient


class Classifier(nn.Module):
    """An injection, an equilibrium and a head."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.injection, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.deq = DEQ(TanhCell(), *parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.deq(self.injection(x))[0])


class Multiscale(nn.Module):
    """A small MDEQ; its batch normalisations use fixed statistics, or those of their own half."""

    def __init__(self, gradient: GradientEstimator, unrolled: int, own_statistics: bool) -> None:
        super().__init__()
        solver = Broyden(max_evaluations=60, tol=1e-12)
        self.model = mdeq(gradient, solver, channels=(4, 6), head_channels=(2, 3))
        self.model.train(own_statistics)
        self.own_statistics, self._unrolled = own_statistics, unrolled

    def train(self, mode: bool = True) -> Multiscale:
        return self

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images, unrolled=self._unrolled)


FIXED = {"tol": 0, "max_evaluations": 20}
MULTISCALE = {
    "mdeq, implicit": (IMPLICIT, 0),
    "mdeq, phantom": (PHANTOM, 0),
    "mdeq, pretraining": (PHANTOM, 3),
}
CASES = [
    "implicit",
    "implicit, preconditioned",
    "unrolled",
    "through the reversible solver",
    "compiled unrolled",
    # A reversible backward pass evaluates the cell as often as its own samples need.
    *(f"sharded {name}" for name in ("implicit", "unrolled", "neumann", "through the solver")),
    "mdeq, implicit, own",
    "mdeq, phantom, fixed",
    "mdeq, pretraining, own",
]


def case(name: str) -> tuple[nn.Module, Tensor]:
    """The same model and batch in every process."""
    torch.manual_seed(1)
    if (estimator := name.removeprefix("sharded ").removeprefix("compiled ")) in ESTIMATORS:
        solver, gradient = ESTIMATORS[estimator]
        if not name.startswith("sharded "):
            return Classifier(Parts(solver, gradient)), torch.randn(8, 3)
        # Each evaluation gathers the weights, so all processes must make equally many.
        if isinstance(gradient, ImplicitGradient):
            gradient = replace(gradient, solver=replace(gradient.solver, **FIXED))
        model = Classifier(Parts(replace(solver, **FIXED), gradient))
        weight_norm(model.deq.cell.linear)
        return model, torch.randn(8, 3)
    kind, _, statistics = name.rpartition(", ")
    return Multiscale(*MULTISCALE[kind], statistics == "own"), torch.randn(4, 3, 8, 8)


def gradients(model: nn.Module, batch: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the mean square of the output, by parameter."""
    model(batch).square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    return tuple(g.full_tensor() if hasattr(g, "full_tensor") else g for g in gradients)


def distributed(name: str, model: nn.Module) -> nn.Module:
    """Wrap the model with DDP, its solve perhaps compiled, or shard cell and rest with FSDP2."""
    if name.startswith("compiled"):
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a")
        model.deq.compile_solve(backend="eager")
    if not name.startswith("sharded"):
        return DistributedDataParallel(model)
    fully_shard(model.deq.cell)
    return fully_shard(model)


def work(rank: int, folder: str) -> None:
    """Save the gradients that DDP or FSDP2 makes of one half of each batch; an adaptive radius."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    found: dict[str, object] = {}
    for name in CASES:
        model, batch = case(name)
        found[name] = gradients(distributed(name, model), batch.chunk(2)[rank])
    damping = AdaptiveDamping(every=1, iterations=20)
    damping.observe(lambda z: -(rank + 2) * z, torch.randn(2, 3))  # its radius is 2 or 3
    found["radius"] = damping.radius
    torch.save(found, Path(folder) / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()
