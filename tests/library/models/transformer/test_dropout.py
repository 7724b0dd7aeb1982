"""The DEQ-Transformer's dropout: one mask for solve and gradient, none in evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformer_small import IMPLICIT, PHANTOM, small, some_memory, words

from phantomgrad import FixedPoint, GradientEstimator, NeumannPhantomGradient
from phantomgrad.models import TransformerLM
from phantomgrad.nn import VariationalDropout

MASKS = {
    "embedding_dropout": (3, 1, 8),
    "output_dropout": (3, 5, 1),
    "distances.dropout": (1, 8),
    "deq.cell.attention.dropout": (2, 3, 5, 9),  # heads first
    "deq.cell.attention_dropout": (3, 1, 8),
    "deq.cell.feed_forward.dropout": (3, 1, 12),
    "deq.cell.feed_forward_dropout": (3, 1, 8),
}


def dropouts(model: TransformerLM) -> dict[str, VariationalDropout]:
    return {n: m for n, m in model.named_modules() if isinstance(m, VariationalDropout)}


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
@pytest.mark.parametrize("unrolled", [0, 3])
def test_one_mask_serves_solve_and_gradient(gradient: GradientEstimator, unrolled: int) -> None:
    solver = FixedPoint(max_evaluations=20, tol=0)
    model = small(gradient, solver, dropout=0.4, attention_dropout=0.4)
    masks: dict[str, list[Tensor]] = {}
    for name, module in dropouts(model).items():
        seen = masks.setdefault(name, [])
        module.register_forward_hook(lambda m, _i, _o, seen=seen: seen.append(m._mask))
    model(*words(), some_memory(), unrolled=unrolled)[0].sum().backward()
    assert {name: tuple(seen[0].shape) for name, seen in masks.items()} == MASKS
    assert all(mask is seen[0] for seen in masks.values() for mask in seen)
    counts = {name: len(seen) for name, seen in masks.items()}
    assert len(masks["deq.cell.feed_forward.dropout"]) >= 3
    model(*words(), some_memory(), unrolled=unrolled)
    assert all(seen[counts[name]] is not seen[0] for name, seen in masks.items())


def test_output_dropout_takes_tokens_or_features() -> None:
    for kind, shape in (("tokens", (3, 5, 1)), ("features", (3, 1, 8))):
        model = small(dropout=0.3, output_dropout=kind)
        model(*words())
        assert model.output_dropout._mask.shape == shape


def test_rates_are_those_asked_for() -> None:
    rates = {n: m.p for n, m in dropouts(small(dropout=0.3, attention_dropout=0.1)).items()}
    assert rates == {name: 0.1 if name.endswith("attention.dropout") else 0.3 for name in MASKS}


@torch.no_grad()
def test_evaluation_is_deterministic_and_reports_the_solve() -> None:
    model, (tokens, targets) = small(dropout=0.4, attention_dropout=0.2).eval(), words()
    assert torch.equal(model(tokens, targets)[0], model(tokens, targets)[0])
    assert model.deq.last_solution.converged.all()
    assert all(m._mask is None for m in dropouts(model).values())
    model.train()
    assert not torch.equal(model(tokens, targets)[0], model(tokens, targets)[0])
