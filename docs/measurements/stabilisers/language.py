"""A DEQ-Transformer on the characters of Python's help texts."""

from collections import Counter
from functools import cache
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor
from variants import Training, Variant

from phantomgrad import spectral_radius
from phantomgrad.models import TransformerLM
from phantomgrad.models.transformer import empty_memory

VARIANTS = (
    Variant("no remedy"),
    Variant("learning rate 0.001", lr=0.001),
    Variant("pre-norm with the normalised residual", norm="pre"),
    Variant("post-norm", norm="post"),
    Variant("Jacobian regularisation, weight 1", regularisation=1.0),
    Variant("Jacobian regularisation, weight 10", regularisation=10.0),
    Variant("damped iteration, λ = 0.5", damping=0.5),
    Variant("30 steps of pretraining", pretraining=30),
    Variant("UPG, k = 5, λ = 0.5", upg=True),
    Variant("pre-norm with the normalised residual, UPG", norm="pre", upg=True),
    Variant("post-norm, UPG", norm="post", upg=True),
)
LENGTH, BATCH = 24, 16


@cache
def characters() -> tuple[Tensor, int]:
    """Return the texts as characters, the rarest of which are one, and how many there are."""
    text = "\n".join(topics[name] for name in sorted(topics)).lower()
    common = [c for c, _ in Counter(text).most_common(60)]
    index = {c: i for i, c in enumerate(common)}
    return torch.tensor([index.get(c, len(common)) for c in text]), len(common) + 1


def segments(text: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return random segments and their successors, ``(count, LENGTH)``."""
    starts = torch.randint(len(text) - LENGTH, (count, 1))
    tokens = text[starts + torch.arange(LENGTH + 1)]
    return tokens[:, :-1], tokens[:, 1:]


def train(variant: Variant, seed: int, steps: int = 120) -> dict[str, Any]:
    """Train on nine tenths of the text, test on 256 segments of the rest."""
    torch.manual_seed(seed)
    text, vocabulary = characters()
    fit, test = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    model = TransformerLM(
        *(vocabulary, variant.solver(), variant.gradient()),
        **{"width": 32, "heads": 4, "inner": 64, "cutoffs": (), "memory_length": 0},
        **{"dropout": 0.0, "embedding_std": 0.2, "pre_norm": variant.norm != "post"},
        raw_residual=variant.norm == "none",
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=variant.lr)
    training = Training(model, model.deq, optimizer, variant)
    for step in range(steps):
        unrolled = 5 if step < variant.pretraining else 0
        loss, _ = model(*segments(fit, BATCH), unrolled=unrolled)
        if not training.step(loss.mean()):
            return training.result(loss=float("inf"))
    model.eval()
    tokens, targets = segments(test, 256)
    with torch.no_grad():
        loss = model(tokens, targets)[0].mean().item()
        u = model.inject(tokens[:BATCH])
        context = model.context(u, empty_memory(u, u.dtype))
    f, start = model.deq.close_over((context,), model.start(u))
    z = model.deq.solver.solve(f, start).z
    return training.result(spectral_radius(f, z, iterations=40), loss=loss)
