"""How far the maps of the models are from their products: eager, compiled, and the floor.

    OMP_NUM_THREADS=1 python benchmarks/floor.py [mdeq_tiny mdeq_tiny_16 transformer ...]

The floor of a map f is the time of its convolutions and matrix products alone, with the operands
that they have in f. All take turns, in CPU time of one thread, and a line has medians of ratios:
of an evaluation, and of a recorded one with its backward.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import phantomgrad as pg
from phantomgrad.closure import LayerMap
from phantomgrad.models import MDEQ, ImplicitGraphLayer, TransformerLM
from phantomgrad.models.transformer import Memory
from phantomgrad.nn import entered
from phantomgrad_suite.callbacks.capture import watch
from phantomgrad_suite.jobs.environment import describe_environment
from phantomgrad_suite.studies.meters import Clock, paired_ratio

PARTS = pg.FixedPoint(max_evaluations=2), pg.UnrolledPhantomGradient(1, 1.0)
PRODUCTS = {"convolution", "convolution_backward", "mm", "addmm", "bmm", "baddbmm"}
REPEATS = 15

Case = tuple[nn.Module, Sequence[Any]]
"""A model and its inputs."""


class Products(TorchDispatchMode):
    """Keeps the products that are computed within it, to compute them again."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = partial(func, *args, **kwargs or {})
        if func.overloadpacket.__name__ in PRODUCTS:
            self.calls.append(call)
        return call()

    @torch.no_grad()
    def again(self) -> None:
        for call in self.calls:
            call()


def mdeq_tiny(batch: int = 64, side: int = 8) -> Case:
    """MDEQ-Tiny on images of CIFAR-10 at a quarter of their resolution."""
    return MDEQ.tiny(*PARTS), [torch.randn(batch, 3, side, side)]


def mdeq_tiny_16() -> Case:
    """MDEQ-Tiny on images of CIFAR-10 at half of their resolution."""
    return mdeq_tiny(32, 16)


def mdeq_tiny_32() -> Case:
    """MDEQ-Tiny on images of CIFAR-10."""
    return mdeq_tiny(16, 32)


def transformer() -> Case:
    """The DEQ-Transformer of Table 3's CPU edition, with a full memory."""
    sizes: Any = {"width": 128, "heads": 4, "inner": 512, "cutoffs": (100,), "memory_length": 64}
    model, words = (
        TransformerLM(180, *PARTS, embedding_std=0.1, **sizes),
        torch.randint(180, (16, 65)),
    )
    memory = Memory(torch.randn(16, 64, 128), torch.randn(16, 64, 384))
    return model, [words[:, :-1], words[:, 1:], memory]


def ignn(nodes: int = 5000) -> Case:
    """A layer of IGNN for graph classification."""
    edges = torch.randint(nodes, (2, 4 * nodes))
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    return ImplicitGraphLayer(35, 64, *PARTS), [torch.randn(nodes, 35), edges]


MODELS = {
    model.__name__: model for model in (mdeq_tiny, mdeq_tiny_16, mdeq_tiny_32, transformer, ignn)
}


def main(names: list[str]) -> None:
    """Print a line for each of the named models and kind of evaluation."""
    if unknown := {*names} - {*MODELS}:
        sys.exit(f"there is no model {min(unknown)}: choose from {', '.join(MODELS)}")
    torch.manual_seed(0)
    print(describe_environment(torch.device("cpu"))["processor"])
    print("model, evaluation, ms of products, eager / products, compiled / products")
    for name in names or MODELS:
        f, z = last_pass(*MODELS[name]())
        compiled = replace(f, call=torch.compile(f.cell.__call__, dynamic=False))
        for kind, evaluate in (("alone", alone), ("recorded, with backward", recorded)):
            with entered(f.held):
                compare(f"{name}, {kind}", *(partial(evaluate, map_, z) for map_ in (f, compiled)))


def last_pass(model: nn.Module, inputs: Sequence[Any]) -> tuple[LayerMap, Tensor]:
    """Return map and equilibrium of the layer of a model that is called with ``inputs``."""
    passes: list[Any] = []
    with watch(model, lambda _, f, z, attached: passes.append((f, z))):
        model(*inputs)
    return passes[0]  # type: ignore[no-any-return]


@torch.no_grad()
def alone(f: LayerMap, z: Tensor) -> None:
    """Evaluate f as solvers do."""
    f(z)


def recorded(f: LayerMap, z: Tensor) -> None:
    """Evaluate f as UPG does, and pull a cotangent back through it."""
    z = z.detach().requires_grad_()
    torch.autograd.grad(f(z).sum(), [z, *f.tensors], retain_graph=True, allow_unused=True)


def compare(name: str, eager: Callable[[], None], compiled: Callable[[], None]) -> None:
    """Print the medians of one line."""
    with Products() as products:
        eager()
    compiled()
    clock = Clock(torch.device("cpu"))
    floor, *times = clock.take_turns([products.again, eager, compiled], REPEATS)
    ratios = ", ".join(f"{paired_ratio(seconds, floor):.2f}" for seconds in times)
    print(f"{name}, {1000 * statistics.median(floor):.1f}, {ratios}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
