"""The DEQ-Transformer replayed, compiled, under autocast, copied; refused arguments and inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_small import small, some_memory, words
from twins import Twin, assert_twin, twins

from phantomgrad import Broyden, FixedPoint, ImplicitGradient
from phantomgrad.models import Memory
from phantomgrad.nn import VariationalDropout


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


# Dynamo reads the .grad of every input, which makes torch warn.
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


@pytest.mark.parametrize("recompute", [False, True])
def test_states_stay_in_float32_under_autocast(recompute: bool) -> None:
    solver = Broyden(max_evaluations=8, tol=1e-2)
    model = small(ImplicitGradient(solver=solver), solver, recompute=recompute).float()
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
def test_copies_and_pickles(twin_of: Twin, used: bool) -> None:
    segment = words()
    assert_twin(small(), twin_of, lambda model: model(*segment)[0].sum(), used)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"width": 9, "heads": 3}, "width must be even, .* got 9"),
        ({"heads": 3}, "width must be a multiple of heads = 3, got 8"),
        ({"inner": 0}, "inner must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 2, got 0"),
        ({"cutoffs": (6, 6)}, r"cutoffs must increase strictly .* vocabulary = 30, got \[6, 6\]"),
        ({"cutoffs": (1, 2, 3, 4)}, "shrinkage must leave the last table a width, .* got 2"),
        ({"shrinkage": 0}, "shrinkage must be at least 1, got 0"),
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"raw_residual": True}, "raw_residual must be False without pre_norm, got True"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.1}, r"attention_dropout must lie in \[0, 1\), got -0.1"),
        ({"output_dropout": "rows"}, "output_dropout must be 'tokens' or 'features', got 'rows'"),
        ({"cutoffs": 6}, "cutoffs must be a list, got 6"),
        ({"cutoffs": (6.5, 20)}, r"cutoffs must hold integers, got \[6.5, 20\]"),
        ({"embedding_std": -1.0}, "embedding_std must be finite and not negative, got -1.0"),
    ],
)
def test_bad_arguments_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**bad)


def integers(*shape: int, fill: int = 1) -> Tensor:
    return torch.full(shape, fill)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": integers(5)}, r"tokens must be integers \(B, L\), got torch.int64 .* \(5,\)"),
        ({"tokens": torch.zeros(3, 5)}, "tokens must be integers .* got torch.float"),
        ({"tokens": integers(3, 5, fill=30)}, r"tokens must lie in \[0, 30\), got 30 to 30"),
        ({"targets": integers(3, 5, fill=-1)}, r"targets must lie in \[0, 30\), got -1 to -1"),
        ({"targets": integers(3, 4)}, r"targets must be \(3, 5\) like tokens, got \(3, 4\)"),
        ({"memory": some_memory(2)}, r"memory must hold states \(3, M, 8\) .* got \(2, 4, 8\)"),
        (
            {"memory": Memory(torch.zeros(3, 4, 8), torch.zeros(3, 3, 24))},
            r"injections \(3, M, 24\), got \(3, 4, 8\) and \(3, 3, 24\)",
        ),
        ({"unrolled": -1}, "unrolled must be at least 0, got -1"),
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
    ],
)
def test_bad_segments_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small()(**{"tokens": integers(3, 5), "targets": integers(3, 5), **changed})
