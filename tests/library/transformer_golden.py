"""The DEQ-Transformer in small as the official code computes it, and the rule that fills a model.

From locuslab/deq, commit 1fb7059, in float64 throughout (the official code rounds the scores of
the attention to float32 and back). There is no official phantom gradient of it: those rows are
plain autograd on its map, embedding and softmax. ``golden/deq_transformer.json`` holds complete
tensors, row by row, or statistics: mean, L2 norm and the first three elements, the mean left out
for gradients.
"""

from typing import Any

import torch
from problems import golden_file
from torch import Tensor

from phantomgrad import FixedPoint, GradientEstimator, Solver, UnrolledPhantomGradient
from phantomgrad.models import Memory, TransformerLM

NUMBERS: dict[str, Any] = golden_file("deq_transformer")
BATCH, LENGTH, MEMORY, WIDTH = 2, 5, 6, 20
STATES = (BATCH, LENGTH, WIDTH)
SIZE: dict[str, Any] = {
    "width": WIDTH,
    "heads": 4,
    "inner": 32,
    "cutoffs": (12, 20, 34),
    "shrinkage": 2,
    "memory_length": MEMORY,
    "dropout": 0.0,
}
VARIANTS: dict[str, dict[str, bool]] = {"PostLN": {}, "PreLN": {"pre_norm": True}}
STAY = FixedPoint(max_evaluations=1, tol=0)  # the start is the only candidate: no solve
UPG = UnrolledPhantomGradient(5, 0.8)

TOKENS = torch.tensor(
    [
        [0, 12, 34, 20, 34, 11, 33, 19, 49, 5, 27, 40, 3, 12, 0, 21],
        [49, 20, 11, 7, 15, 34, 8, 25, 12, 8, 16, 2, 45, 30, 33, 9],
    ]
)
WORDS = torch.tensor([0, 11, 12, 19, 20, 33, 34, 49, 5, 15, 27, 40])


def _normed(symbol: str, module: str) -> dict[str, str]:
    """Direction and gain of a weight-normed map."""
    prefix = f"deq.cell.{module}.parametrizations.weight.original"
    return {f"{symbol} v": f"{prefix}1", f"{symbol} g": f"{prefix}0"}


# The number t of a tensor is its place in this list, from 1 on.
NAMES = {
    **{f"E{i}": f"embedding.tables.{i}" for i in range(4)},
    **{f"P{i}": f"embedding.projections.{i}" for i in range(4)},
    "W_inj": "injection.weight",
    "b_inj": "injection.bias",
    "b_w": "deq.cell.attention.content_bias",
    "b_r": "deq.cell.attention.position_bias",
    **_normed("W_qkv", "attention.qkv"),
    **_normed("W_r", "attention.position"),
    **_normed("W_o", "attention.output"),
    "b_o": "deq.cell.attention.output.bias",
    **_normed("W1", "feed_forward.linear1"),
    "b1": "deq.cell.feed_forward.linear1.bias",
    **_normed("W2", "feed_forward.linear2"),
    "b2": "deq.cell.feed_forward.linear2.bias",
    "W_c": "softmax.cluster_weight",
    "b_c": "softmax.cluster_bias",
    "Q0": "softmax.projection",
    **{f"a{i}": f"softmax.biases.{i}" for i in range(4)},
}
# Numbers of the inputs.
STATE, MEMORY_STATES, MEMORY_INJECTIONS, HIDDEN = 101, 102, 103, 104


def phase(t: int, *shape: int) -> Tensor:
    """``n^2 + n + t`` for the row-major index n: exact, and of full rank under a sine."""
    n = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return (n * n + n + t).view(shape)


def given(t: int, *shape: int) -> Tensor:
    """An input."""
    return phase(t, *shape).cos()


def state() -> Tensor:
    """A state of segment 0."""
    return given(STATE, *STATES)


def value(symbol: str, t: int, shape: torch.Size) -> Tensor:
    """A parameter."""
    q = phase(t, *shape)
    if symbol.endswith(" g"):
        return 1 + 0.1 * q.sin()
    bias = symbol[0] in "ab" and symbol not in ("b_w", "b_r")
    return 0.1 * q.cos() if bias else 0.3 * q.sin()


@torch.no_grad()
def model(
    solver: Solver = STAY, gradient: GradientEstimator = UPG, **settings: Any
) -> TransformerLM:
    """The filled model."""
    filled = TransformerLM(50, solver, gradient, **{**SIZE, **settings})
    for t, (symbol, name) in enumerate(NAMES.items(), start=1):
        parameter = filled.get_parameter(name)
        parameter.copy_(value(symbol, t, parameter.shape))
    return filled


def segment(s: int) -> tuple[Tensor, Tensor]:
    """Tokens and targets."""
    start = s * LENGTH
    return TOKENS[:, start : start + LENGTH], TOKENS[:, start + 1 : start + LENGTH + 1]


def memory() -> Memory:
    """A memory of six positions."""
    return Memory(
        given(MEMORY_STATES, BATCH, MEMORY, WIDTH), given(MEMORY_INJECTIONS, BATCH, MEMORY, 60)
    )


def statistics(x: Tensor) -> list[float]:
    """Mean, L2 norm, first elements in row-major order."""
    return [x.mean().item(), *size(x)]


def size(x: Tensor) -> list[float]:
    """L2 norm, first elements in row-major order."""
    x = x.detach().flatten()
    return [torch.linalg.vector_norm(x).item(), *x[:3].tolist()]


def gradients(filled: TransformerLM) -> dict[str, list[float]]:
    """What the golden rows list of each gradient."""
    return {symbol: size(filled.get_parameter(name).grad) for symbol, name in NAMES.items()}
