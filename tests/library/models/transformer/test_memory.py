"""The memory, causality and dropout of the DEQ-Transformer."""

from __future__ import annotations

import pytest
import torch
import transformer_golden as golden
from torch import Tensor
from transformer_small import (
    IMPLICIT,
    PHANTOM,
    PRE_NORM,
    TIGHT,
    VOCABULARY,
    small,
    some_memory,
    words,
)

from phantomgrad import FixedPoint, GradientEstimator, NeumannPhantomGradient
from phantomgrad.models import Memory, TransformerLM
from phantomgrad.nn import VariationalDropout


@PRE_NORM
@torch.no_grad()
def test_no_position_depends_on_a_later_one(pre_norm: bool) -> None:
    model = small(pre_norm=pre_norm).eval()
    tokens, targets = words()
    memory = some_memory()
    before, _ = model(tokens, targets, memory, unrolled=3)
    tokens[:, 3] = (tokens[:, 3] + 11) % VOCABULARY
    after, _ = model(tokens, targets, memory, unrolled=3)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


@PRE_NORM
def test_gradients_reach_no_later_position(pre_norm: bool) -> None:
    model = small(IMPLICIT, pre_norm=pre_norm)
    kept: list[Tensor] = []
    model.injection.register_forward_hook(lambda _m, _i, u: kept.append(u))
    loss, _ = model(*words())
    (gradient,) = torch.autograd.grad(loss[:, 2].sum(), kept)
    reached = gradient.abs().sum(dim=2) > 1e-12
    assert reached.tolist() == [[True, True, True, False, False]] * 3


@torch.no_grad()
def test_sequences_of_a_batch_are_independent() -> None:
    model, memory = small().eval(), some_memory()
    tokens, targets = words()
    alone, _ = model(tokens[:1], targets[:1], Memory(memory[0][:1], memory[1][:1]))
    torch.testing.assert_close(alone, model(tokens, targets, memory)[0][:1])


@PRE_NORM
@torch.no_grad()
def test_equilibrium_of_a_segment_is_that_of_its_parts(pre_norm: bool) -> None:
    model = golden.model(TIGHT, pre_norm=pre_norm).eval()
    tokens, targets = golden.TOKENS[:, :-1], golden.TOKENS[:, 1:]
    whole, _ = model(tokens, targets)
    losses, memory = [], None
    for part, expected in zip(tokens.split(5, 1), targets.split(5, 1), strict=True):
        loss, memory = model(part, expected, memory, memory_length=10)
        losses.append(loss)
    torch.testing.assert_close(torch.cat(losses, dim=1), whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("unrolled", [0, 2])
def test_memory_is_the_output_without_its_graph(unrolled: int) -> None:
    model, hidden = small(), []
    model.output_dropout.register_forward_pre_hook(lambda _m, args: hidden.append(args[0]))
    tokens, targets = words()
    _, memory = model(tokens, targets, some_memory(length=3), unrolled=unrolled)
    assert torch.equal(memory.states, hidden[0][:, -4:])
    assert torch.equal(memory.injections, model.inject(tokens)[:, -4:])
    assert not memory.states.requires_grad
    assert not memory.injections.requires_grad


@pytest.mark.parametrize(("kept", "expected"), [(None, 4), (0, 0), (2, 2), (5, 5), (7, 7), (20, 8)])
@torch.no_grad()
def test_memory_keeps_the_last_positions(kept: int | None, expected: int) -> None:
    model, before = small(), some_memory(length=3)
    _, memory = model(*words(), before, memory_length=kept)
    assert memory.states.shape == (3, expected, 8)
    assert memory.injections.shape == (3, expected, 24)
    assert memory.length == expected
    old = max(0, expected - 5)
    assert torch.equal(memory.states[:, :old], before.states[:, 3 - old :])
    assert torch.equal(memory.injections[:, :old], before.injections[:, 3 - old :])
    assert memory.states.untyped_storage().nbytes() == memory.states.nbytes


@torch.no_grad()
def test_an_empty_memory_equals_none() -> None:
    model, (tokens, targets) = small(), words()
    loss, _ = model(tokens, targets)
    assert torch.equal(loss, model(tokens, targets, some_memory(length=0))[0])
    assert not torch.equal(loss, model(tokens, targets, some_memory(length=1))[0])


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
def test_solve_and_gradient_share_one_mask(gradient: GradientEstimator, unrolled: int) -> None:
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


@torch.no_grad()
def test_evaluation_is_deterministic_and_reports_the_solve() -> None:
    model, (tokens, targets) = small(dropout=0.4, attention_dropout=0.2).eval(), words()
    assert torch.equal(model(tokens, targets)[0], model(tokens, targets)[0])
    assert model.deq.last_solution.converged.all()
    assert all(m._mask is None for m in dropouts(model).values())
    model.train()
    assert not torch.equal(model(tokens, targets)[0], model(tokens, targets)[0])
