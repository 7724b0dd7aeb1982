"""Numbers of the official MDEQ code in float64, and the rules that fill a model to get them.

From the phantom-gradient release, commit 9d321cf; there is no official NPG, whose rows come from
vector-Jacobian products of the official map. ``golden/mdeq.json`` holds:

- ``forward``: mean, L2 norm, first elements; evaluation mode, fill A, the cosine state; 8 digits.
- ``logits``: of the first image, in the same setting.
- ``broyden``: ``|f(z) - z|`` over the batch at each evaluation of Broyden's method from zero, by
  size and first step: 1 in the later codes, -1 in the authors'.
- ``unrolled_loss``: training mode, 10 applications from zero.
- ``from_zero``: training mode, Tiny, fill A, UPG from the zero state by (steps, damping): loss,
  logit[0, 0], then the norms of GRADIENTS; 6 digits.
- ``from_cosine``: the same from the cosine state, damping 0.5, by (estimator, steps); 9 digits.
- ``fixed_point``: training mode, Tiny, fill B: the equilibrium of each scale.
- ``from_fixed_point``: the gradients there by (estimator, steps).
"""

from typing import Any

import torch
from problems import golden_file
from torch import Tensor, nn

from phantomgrad import FixedPoint, GradientEstimator, Solver, UnrolledPhantomGradient
from phantomgrad.models import MDEQ

NUMBERS: dict[str, Any] = golden_file("mdeq")
IMAGENET: dict[str, Any] = {
    "channels": (32, 64, 128, 256),
    "head_channels": (24, 48, 96, 192),
    "features": 2048,
    "stem_strides": (2, 2),
    "init_std": None,
}
CLASSES = {"tiny": 10, "large": 10, "imagenet_small": 1000}
# Evaluations of f in a solve, one more than the steps; entries of one state.
BUDGETS = {"tiny": (23, 30_720), "large": (19, 61_440), "imagenet_small": (27, 188_160)}
LABELS = torch.tensor([3, 7])
STAY = FixedPoint(max_evaluations=1, tol=0)  # the start is the only candidate: no solve
UPG = UnrolledPhantomGradient(5, 0.5)


def sized(
    size: str, solver: Solver = STAY, gradient: GradientEstimator = UPG, **settings: Any
) -> MDEQ:
    """A model of the paper."""
    if size == "imagenet_small":
        return MDEQ(3, CLASSES[size], solver, gradient, **IMAGENET, **settings)
    made: MDEQ = getattr(MDEQ, size)(solver, gradient, **settings)
    return made


@torch.no_grad()
def filled(model: MDEQ, *, contractive: bool = False) -> MDEQ:
    """Fill every parameter from its row-major index; ``contractive``: fill B, else fill A."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            parameter.copy_(_values(module, name, parameter, contractive))
    if contractive:
        for post in model.deq.cell.post:
            post[-1].weight.mul_(0.03)
    return model


def _values(module: nn.Module, name: str, parameter: Tensor, contractive: bool) -> Tensor:
    n = torch.arange(parameter.numel(), dtype=torch.float64).view(parameter.shape)
    phase = n * n + n + 1 if contractive else n + 1
    if name == "bias":
        return 0.1 * phase.cos()
    norm = isinstance(module, nn.GroupNorm | nn.BatchNorm2d)
    gain = name == "original0"  # of the weight norm
    return 1 + 0.1 * phase.sin() if norm or gain else 0.1 * phase.sin()


def images() -> Tensor:
    """``sin(0.1 n)``."""
    return (0.1 * torch.arange(2 * 3 * 32**2, dtype=torch.float64)).sin().view(2, 3, 32, 32)


def cosine_state(model: MDEQ, u: Tensor) -> tuple[Tensor, ...]:
    """``cos(0.1 n)`` on each scale, in the memory order of the model's own states."""
    return tuple(
        z.copy_((0.1 * torch.arange(z.numel(), dtype=torch.float64)).cos().view(z.shape))
        for z in model.start(u.detach())
    )


def statistics(x: Tensor, elements: int = 3) -> list[float]:
    """Mean, L2 norm, first elements in row-major order."""
    x = x.detach().contiguous().flatten()
    return [x.mean().item(), torch.linalg.vector_norm(x).item(), *x[:elements].tolist()]


GRADIENTS = [
    "stem.0.weight",
    "stem.4.bias",
    "deq.cell.blocks.0.conv1.parametrizations.weight.original1",
    "deq.cell.blocks.0.conv1.parametrizations.weight.original0",
    "deq.cell.blocks.1.norm3.weight",
    "deq.cell.fusion.paths.1_to_0.0.weight",
    "deq.cell.fusion.paths.0_to_1.0.weight",
    "deq.cell.post.1.1.parametrizations.weight.original1",
    "head.bottlenecks.0.main.3.weight",
    "head.output.weight",
]


def gradient_norms(model: MDEQ) -> list[float]:
    """L2 norms of the gradients that the golden rows list."""
    return [torch.linalg.vector_norm(model.get_parameter(name).grad).item() for name in GRADIENTS]
