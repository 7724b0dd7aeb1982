"""The DEQ-Transformer's memory and causality: who sees whom, and what is remembered."""

from __future__ import annotations

import pytest
import torch
import transformer_golden as golden
from torch import Tensor
from transformer_small import IMPLICIT, PRE_NORM, TIGHT, VOCABULARY, small, some_memory, words

from phantomgrad.models import Memory


@PRE_NORM
@torch.no_grad()
def test_no_position_sees_a_later_one(pre_norm: bool) -> None:
    model = small(pre_norm=pre_norm).eval()
    tokens, targets = words()
    memory = some_memory()
    before, _ = model(tokens, targets, memory, unrolled=3)
    tokens[:, 3] = (tokens[:, 3] + 11) % VOCABULARY
    after, _ = model(tokens, targets, memory, unrolled=3)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


@PRE_NORM
def test_gradients_reach_back_only(pre_norm: bool) -> None:
    model = small(IMPLICIT, pre_norm=pre_norm)
    kept: list[Tensor] = []
    model.injection.register_forward_hook(lambda _m, _i, u: kept.append(u))
    loss, _ = model(*words())
    (gradient,) = torch.autograd.grad(loss[:, 2].sum(), kept)
    reached = gradient.abs().sum(dim=2) > 1e-12
    assert reached.tolist() == [[True, True, True, False, False]] * 3


@torch.no_grad()
def test_sequences_of_a_batch_do_not_see_each_other() -> None:
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


@PRE_NORM
@torch.no_grad()
def test_map_of_a_segment_is_that_of_its_parts(pre_norm: bool) -> None:
    model = small(pre_norm=pre_norm, window=6)
    cell, z, u = model.cell, torch.randn(3, 9, 8), torch.randn(3, 9, 24)
    none = Memory(z[:, :0], u[:, :0])
    whole = cell(z, model.context(u, none))
    first = cell(z[:, :4], model.context(u[:, :4], none))
    second = cell(z[:, 4:], model.context(u[:, 4:], Memory(z[:, :4], u[:, :4])))
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)


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
def test_an_empty_memory_is_none() -> None:
    model, (tokens, targets) = small(), words()
    loss, _ = model(tokens, targets)
    assert torch.equal(loss, model(tokens, targets, some_memory(length=0))[0])
    assert not torch.equal(loss, model(tokens, targets, some_memory(length=1))[0])
