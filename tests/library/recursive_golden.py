"""Numbers of the authors' TRM in float64, and the rule that fills a model to get them.

From the released implementation (arXiv:2510.04871, state of 2025-10-08), with its casts to float32
changed to float64. ``golden/reasoning.json`` holds, for each mixer, states and logits as sum, L2
norm and probe, the sum of ``value[n] cos(n + 1)`` over the flat index, and gradients as L2 norm and
probe. Of the attention, the segments and schemes are known as a ``summary`` only.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from problems import golden_file
from torch import Tensor

from phantomgrad import GradientEstimator, Solver, Steps, UnrolledPhantomGradient
from phantomgrad.models import Answer, RecursiveReasoner

NUMBERS: dict[str, Any] = golden_file("reasoning")
BATCH, LENGTH, WIDTH, VOCABULARY, IGNORED = 3, 16, 32, 11, -100
ONE = UnrolledPhantomGradient(1, 1.0)

_B, _I = torch.arange(BATCH)[:, None], torch.arange(LENGTH)
TOKENS = 1 + (3 * _B + 5 * _I + _I**2) % 10
LABELS = 2 + (_B + 2 * _I + _I**2 // 3) % 9
LABELS[1, 5] = LABELS[2, 0] = LABELS[2, 15] = IGNORED

_HEADS = ("embedding.weight", "output.weight", "halting.weight", "halting.bias")
_PARTS = {
    "mlp": ("mixer.gate_up", "mixer.down", "feed_forward.gate_up", "feed_forward.down"),
    "attention": ("mixer.qkv", "mixer.output", "feed_forward.gate_up", "feed_forward.down"),
}


def pattern(shape: tuple[int, ...], j: int, scale: float) -> Tensor:
    n = torch.arange(math.prod(shape))
    return scale * torch.sin((((n + 1) ** 2) % 997 + j).to(torch.float64)).view(shape)


def names(mixer: str) -> list[str]:
    """The parameters in the order in which they are filled, without the prefix of the layer."""
    blocks = [f"blocks.{i}.{part}.weight" for i in (0, 1) for part in _PARTS[mixer]]
    return [*_HEADS, *blocks]


@torch.no_grad()
def filled(
    mixer: str,
    solver: Solver = Steps(2),  # noqa: B008 - frozen
    gradient: GradientEstimator = ONE,
    **settings: Any,
) -> RecursiveReasoner:
    sizes = {"width": WIDTH, "heads": 4, "mixer": mixer}
    model = RecursiveReasoner(VOCABULARY, LENGTH, solver, gradient, **sizes, **settings)
    for j, parameter in enumerate(parameters(model, mixer).values()):
        scale = 0.1 if parameter.dim() == 1 else math.sqrt(2 / parameter.shape[1])
        parameter.copy_(pattern(tuple(parameter.shape), j, 0.25 if j == 0 else scale))
    for i, vector in enumerate(model.initial):
        vector.copy_(pattern((WIDTH,), 20 + i, math.sqrt(2)))
    return model


def parameters(model: RecursiveReasoner, mixer: str) -> dict[str, Tensor]:
    found = {
        name.removeprefix("deq.cell.").removeprefix("network."): p
        for name, p in model.named_parameters()
    }
    assert found.keys() == set(names(mixer))
    return {name: found[name] for name in names(mixer)}


def stablemax(logits: Tensor) -> Tensor:
    """The log-probabilities, by the definition."""
    s = torch.where(logits < 0, 1 / (1 - logits.clamp(max=0)), logits + 1)
    return (s / s.sum(-1, keepdim=True)).log()


def losses(answer: Answer, kind: str = "stablemax") -> tuple[Tensor, Tensor]:
    """Of tokens and of halting, each summed over the batch."""
    logs = stablemax(answer.logits) if kind == "stablemax" else answer.logits.log_softmax(-1)
    counted = LABELS != IGNORED
    each = F.nll_loss(logs.mT, LABELS, ignore_index=IGNORED, reduction="none")
    tokens = (each.sum(1) / counted.sum(1)).sum()
    right = ((answer.logits.argmax(-1) == LABELS) | ~counted).all(1)
    halting = F.binary_cross_entropy_with_logits(answer.halting, right.double(), reduction="sum")
    return tokens, halting


def gradients(
    model: RecursiveReasoner, mixer: str, answer: Answer, kind: str = "stablemax"
) -> tuple[float, dict[str, Tensor]]:
    """The loss, tokens + halting / 2, and its gradient by each parameter, zero if it has none."""
    wanted = parameters(model, mixer)
    tokens, halting = losses(answer, kind)
    loss = tokens + 0.5 * halting
    found = torch.autograd.grad(loss, list(wanted.values()), materialize_grads=True)
    return float(loss.detach()), dict(zip(wanted, found, strict=True))


def statistics(x: Tensor) -> list[float]:
    """Sum, L2 norm, probe."""
    x = x.detach().flatten()
    return [float(x.sum()), float(x.norm()), probe(x)]


def probe(x: Tensor) -> float:
    x = x.detach().flatten()
    return float(x @ torch.cos(torch.arange(1, len(x) + 1, dtype=torch.float64)))
