"""The memory, causality and dropout of the DEQ-Transformer."""

import pytest
import torch
import transformer_golden as golden
from small_models import TIGHT, VOCABULARY, some_memory, transformer, words

from phantomgrad.nn import current_pass

PRE_NORM = pytest.mark.parametrize("pre_norm", [False, True], ids=["PostLN", "PreLN"])


@PRE_NORM
@torch.no_grad()
def test_no_position_depends_on_a_later_one(pre_norm):
    model = transformer(pre_norm=pre_norm).eval()
    tokens, targets = words()
    memory = some_memory()
    before, _ = model(tokens, targets, memory, unrolled=3)
    tokens[:, 3] = (tokens[:, 3] + 11) % VOCABULARY
    after, _ = model(tokens, targets, memory, unrolled=3)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


@PRE_NORM
@torch.no_grad()
def test_equilibrium_of_a_segment_is_that_of_its_parts(pre_norm):
    model = golden.model(TIGHT, pre_norm=pre_norm).eval()
    tokens, targets = golden.TOKENS[:, :-1], golden.TOKENS[:, 1:]
    whole, _ = model(tokens, targets)
    losses, memory = [], None
    for part, expected in zip(tokens.split(5, 1), targets.split(5, 1), strict=True):
        loss, memory = model(part, expected, memory, memory_length=10)
        losses.append(loss)
    torch.testing.assert_close(torch.cat(losses, dim=1), whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("unrolled", [0, 2])
def test_memory_is_the_output_without_its_graph(unrolled):
    model, hidden = transformer(), []
    model.output_dropout.register_forward_pre_hook(lambda _m, args: hidden.append(args[0]))
    tokens, targets = words()
    _, memory = model(tokens, targets, some_memory(length=3), unrolled=unrolled)
    assert torch.equal(memory.states, hidden[0][:, -4:])
    assert torch.equal(memory.injections, model.inject(tokens)[:, -4:])
    assert not memory.states.requires_grad
    assert not memory.injections.requires_grad


@pytest.mark.parametrize(("kept", "expected"), [(None, 4), (0, 0), (2, 2), (5, 5), (7, 7), (20, 8)])
@torch.no_grad()
def test_memory_keeps_the_last_positions(kept, expected):
    model, before = transformer(), some_memory(length=3)
    _, memory = model(*words(), before, memory_length=kept)
    assert memory.states.shape == (3, expected, 8)
    assert memory.injections.shape == (3, expected, 24)
    assert memory.length == expected
    old = max(0, expected - 5)
    assert torch.equal(memory.states[:, :old], before.states[:, 3 - old :])
    assert torch.equal(memory.injections[:, :old], before.injections[:, 3 - old :])
    assert memory.states.untyped_storage().nbytes() == memory.states.nbytes


@torch.no_grad()
def test_an_empty_memory_equals_none():
    model, (tokens, targets) = transformer(), words()
    loss, _ = model(tokens, targets)
    assert torch.equal(loss, model(tokens, targets, some_memory(length=0))[0])
    assert not torch.equal(loss, model(tokens, targets, some_memory(length=1))[0])


def test_output_dropout_takes_tokens_or_features():
    masks = []
    for kind in ("tokens", "features"):
        model = transformer(dropout=0.3, output_dropout=kind)
        model.output_dropout.register_forward_hook(
            lambda m, *_: masks.append(current_pass().masks[id(m)])
        )
        model(*words())
    assert [mask.shape for mask in masks] == [(3, 5, 1), (3, 1, 8)]
