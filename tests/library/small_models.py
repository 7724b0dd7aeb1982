"""A small model of every family, and inputs for it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import phantomgrad as pg
from phantomgrad.models import (
    MDEQ,
    Answer,
    ImageClassifier,
    Memory,
    RecursiveReasoner,
    TransformerLM,
)

TIGHT = pg.Broyden(max_evaluations=200, tol=1e-14)
IMPLICIT = pg.ImplicitGradient(solver=TIGHT)
PHANTOM = pg.UnrolledPhantomGradient(3, 0.5)
ONE_STEP, TWO_STEPS = pg.UnrolledPhantomGradient(1, 1.0), pg.Steps(2)
VOCABULARY = 30


def convolutional(
    gradient: pg.GradientEstimator = PHANTOM, solver: pg.Solver = TIGHT, **settings: Any
) -> ImageClassifier:
    """Four channels, well inside the region of contraction."""
    sizes = {"channels": 4, "groups": 2, "kappa": 0.4, "pooled": 2, **settings}
    return ImageClassifier(3, 4, solver, gradient, **sizes)


def mdeq(
    gradient: pg.GradientEstimator = PHANTOM, solver: pg.Solver = TIGHT, **settings: Any
) -> MDEQ:
    """Three scales, contractive: the states vary little around the mean they are divided by."""
    sizes = {
        "channels": (4, 6, 8),
        "head_channels": (2, 3, 4),
        "features": 5,
        "expansion": 2,
        "groups": 2,
        **settings,
    }
    model = MDEQ(3, 4, solver, gradient, **sizes)
    with torch.no_grad():
        for post in model.deq.cell.post:
            post[-1].weight.mul_(0.03)
            post[-1].bias.normal_()
    return model


def transformer(
    gradient: pg.GradientEstimator = PHANTOM, solver: pg.Solver = TIGHT, **settings: Any
) -> TransformerLM:
    """Three clusters; injections of the size of the state."""
    sizes = {
        "width": 8,
        "heads": 2,
        "inner": 12,
        "cutoffs": (6, 15),
        "shrinkage": 2,
        "memory_length": 4,
        "dropout": 0.0,
        "embedding_std": 0.5,
        **settings,
    }
    return TransformerLM(VOCABULARY, solver, gradient, **sizes)


def reasoner(
    gradient: pg.GradientEstimator = ONE_STEP, solver: pg.Solver = TWO_STEPS, **settings: Any
) -> RecursiveReasoner:
    """Five tokens, six cells."""
    sizes = {"width": 8, "heads": 2, "multiple": 4, "n": 2, **settings}
    model = RecursiveReasoner(5, 6, solver, gradient, **sizes)
    nn.init.normal_(model.halting.weight)
    return model


def contractive_reasoner(
    gradient: pg.GradientEstimator = PHANTOM, solver: pg.Solver = TIGHT, **settings: Any
) -> RecursiveReasoner:
    """With weights so small that norms of sums with the puzzle dominate the map."""
    model = reasoner(gradient, solver, **settings)
    with torch.no_grad():
        for parameter in model.deq.cell.parameters():
            parameter.mul_(0.2)
        model.embedding.weight.mul_(2)
    return model


def puzzles(batch: int = 3, length: int = 6) -> Tensor:
    return torch.randint(5, (batch, length))


def images(batch: int = 2) -> tuple[Tensor]:
    return (torch.randn(batch, 3, 4, 8),)


def words(batch: int = 3, length: int = 5) -> tuple[Tensor, Tensor]:
    """Tokens and targets, of all clusters."""
    both = torch.randint(VOCABULARY, (2, batch, length))
    both[:, 0, 0] = torch.tensor([2, 29])
    both[:, 1, 1] = torch.tensor([10, 7])
    both[:, 2, 2] = torch.tensor([20, 0])
    return both[0], both[1]


def some_memory(batch: int = 3, length: int = 4, width: int = 8) -> Memory:
    return Memory(torch.randn(batch, length, width), torch.randn(batch, length, 3 * width))


def segment() -> tuple[Tensor, Tensor, Memory]:
    return *words(length=3), some_memory()


class Family(NamedTuple):
    """A small model of a family, its arguments, settings with dropout, and shapes of masks."""

    build: Callable[..., nn.Module]
    arguments: Callable[[], tuple[Any, ...]]
    dropout: dict[str, Any]
    masks: dict[str, tuple[int, ...]]


_DROPOUT = {"dropout": 0.3, "attention_dropout": 0.2, "output_dropout": "features"}
_MASKS = {
    "embedding_dropout": (3, 1, 8),
    "output_dropout": (3, 1, 8),
    "distances.dropout": (1, 8),
    "deq.cell.attention.dropout": (2, 3, 3, 7),  # heads first
    "deq.cell.attention_dropout": (3, 1, 8),
    "deq.cell.feed_forward.dropout": (3, 1, 12),
    "deq.cell.feed_forward_dropout": (3, 1, 8),
}
PAPER = {
    "mdeq": Family(
        mdeq,
        images,
        {"dropout": 0.3},
        {f"deq.cell.blocks.{i}.dropout": (2, 4 + 2 * i, 1, 1) for i in range(3)},
    ),
    "PostLN": Family(transformer, segment, _DROPOUT, _MASKS),
    "PreLN": Family(
        partial(transformer, pre_norm=True), segment, {**_DROPOUT, "recompute": True}, _MASKS
    ),
}
FAMILIES = {
    "convolutional": Family(convolutional, images, {}, {}),
    **PAPER,
    "recursion": Family(contractive_reasoner, lambda: (puzzles(),), {}, {}),
    "single latent": Family(
        partial(contractive_reasoner, n=None, mixer="attention"), lambda: (puzzles(),), {}, {}
    ),
}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
every_paper_family = pytest.mark.parametrize("family", PAPER.values(), ids=PAPER)


def scores(model: nn.Module, arguments: tuple[Any, ...], **options: Any) -> Tensor:
    """Log-probabilities or losses, one row a sample; of a reasoner, both outputs."""
    out = model(*arguments, **options)
    if isinstance(out, Answer):
        return torch.cat([out.logits.flatten(1), out.halting[:, None]], dim=1)
    return out if isinstance(out, Tensor) else out[0]
