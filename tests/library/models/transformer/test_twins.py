"""The DEQ-Transformer played again, compiled, under autocast, copied and pickled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformer_small import IMPLICIT, small, some_memory, words
from twins import twins

from phantomgrad import Broyden, FixedPoint
from phantomgrad.nn import VariationalDropout

# --- Instruments -----------------------------------------------------------------------------


def test_a_pass_can_be_played_again() -> None:
    from phantomgrad_suite.callbacks.capture import Listener, Pass

    model, passes = small(dropout=0.3), []
    listener = Listener(lambda layer, given, output: passes.append(Pass(layer, given, output)))
    listener.start(model)
    model(*words(), some_memory())[0].sum().backward()
    listener.stop()
    assert passes[0].reached
    with passes[0].replay() as (f, z, v, _):
        torch.testing.assert_close(f(z), z)
        assert v.any()


# Dynamo asks every input for its .grad and means to hide what torch says of it.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_solve_can_be_compiled() -> None:
    model = small(solver=FixedPoint(max_evaluations=6, tol=0), dropout=0.3, attention_dropout=0.1)
    (tokens, targets), memory, losses = words(), some_memory(), []
    torch.compiler.reset()
    for compiled in (False, True):
        if compiled:
            model.deq.compile_solve(backend="eager", fullgraph=True)
        torch.manual_seed(1)
        losses.append(model(tokens, targets, memory)[0])
    torch.testing.assert_close(*losses)
    assert not any(m.draws for m in model.cell.modules() if isinstance(m, VariationalDropout))


# --- Precision, copies and pickles -----------------------------------------------------------


@pytest.mark.parametrize("recompute", [False, True])
def test_states_stay_in_float32_under_autocast(recompute: bool) -> None:
    model = small(IMPLICIT, Broyden(max_evaluations=8), recompute=recompute).float()
    seen: list[torch.dtype] = []
    model.cell.feed_forward.dropout.register_forward_pre_hook(
        lambda _m, args: seen.append(args[0].dtype)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, memory = model(*words())
        loss, memory = model(*words(), memory)
        loss.mean().backward()
    assert set(seen) == {torch.bfloat16}
    assert loss.dtype == memory.states.dtype == memory.injections.dtype == torch.float32
    assert all(
        p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters()
    )


@pytest.mark.parametrize("used", [False, True])
@twins(lambda model: small(model.deq.gradient))
def test_twins_compute_the_same(twin_of: Any, used: bool) -> None:
    model, segment = small(), words()
    if used:
        model(*segment)[0].sum().backward()
        model.zero_grad()
    state = torch.random.get_rng_state()
    twin = twin_of(model)
    assert twin_of.__name__ == "rebuilt" or torch.equal(torch.random.get_rng_state(), state)
    pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
    for (name, ours), (twin_name, theirs) in pairs:
        assert name == twin_name
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()
    for one in (model, twin):
        one(*segment)[0].sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
