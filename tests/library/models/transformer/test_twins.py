"""The DEQ-Transformer replayed, compiled, under autocast, copied and pickled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformer_small import IMPLICIT, small, some_memory, words
from twins import assert_twin, twins

from phantomgrad import Broyden, FixedPoint
from phantomgrad.nn import VariationalDropout

# --- Instruments -----------------------------------------------------------------------------


def test_a_pass_can_be_replayed() -> None:
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
def test_copies_and_pickles(twin_of: Any, used: bool) -> None:
    segment = words()
    assert_twin(small(), twin_of, lambda model: model(*segment)[0].sum(), used)
