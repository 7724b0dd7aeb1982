"""Passes of a training step, evaluated again."""

import torch
from small_models import some_memory, transformer, words

from phantomgrad_suite.callbacks.capture import Pass, watch


def test_a_pass_can_be_replayed_with_its_masks():
    model, passes = transformer(dropout=0.3), []
    watch(model, lambda *each: passes.append(Pass(*each)))
    model(*words(), some_memory())[0].sum().backward()
    (captured,) = passes
    assert captured.reached
    state, before = torch.get_rng_state(), [p.grad.clone() for p in model.parameters()]
    with captured.replay() as (f, z, v, wanted):
        torch.testing.assert_close(f(z), z)
        assert v.any()
        found = torch.autograd.grad((f(z) * v).sum(), wanted, allow_unused=True)
        assert any(g is not None and g.any() for g in found)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before, strict=True))
