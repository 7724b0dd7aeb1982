"""Gradients of the DEQ-Transformer, its recomputation, and what it computes once per pass."""

import pytest
import torch
from problems import relative_error
from small_models import some_memory, transformer, words
from torch.utils.flop_counter import FlopCounterMode

import phantomgrad as pg
from phantomgrad.jacobian import jacobian_regularizer

SHORT = pg.FixedPoint(max_evaluations=8, tol=0)


def test_unused_clusters_get_zero_gradients():
    model = transformer()
    loss, _ = model(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.int32))
    loss.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not model.softmax.biases[2].grad.any()


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("pre_norm", [False, True], ids=["PostLN", "PreLN"])
def test_jacobian_regularisation_has_its_gradient(pre_norm, recompute):
    model = transformer(pre_norm=pre_norm, recompute=recompute)
    u = torch.randn(1, 3, 24, requires_grad=True)
    context, z = model.context(u, some_memory(1)), torch.randn(1, 3, 8)

    def f(x):
        return model.cell(x, context)

    v = torch.empty_like(z).normal_(generator=torch.Generator().manual_seed(0))
    jacobian = torch.autograd.functional.jacobian(f, z, create_graph=True).view(24, 24)
    expected = (v.flatten() @ jacobian).square().sum() / 24
    ours = jacobian_regularizer(f, z, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours, expected)
    wanted = [u, *(p for n, p in model.cell.named_parameters() if n != "feed_forward.linear2.bias")]
    gradients = [
        torch.autograd.grad(x, wanted, retain_graph=True, allow_unused=True, materialize_grads=True)
        for x in (ours, expected)
    ]
    assert relative_error(*gradients) < 1e-10


def forward_flops(evaluations, memory):
    torch.manual_seed(1)
    model = transformer(solver=pg.FixedPoint(max_evaluations=evaluations, tol=0))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*words(), memory)
    return counter.get_total_flops()


def test_an_evaluation_does_not_recompute_constants():
    memory, (length, total, d, inner) = some_memory(), (5, 9, 8, 12)
    attention = 2 * d * (3 * d + d + 3 * total + 1)  # projections, two scores and a mean
    expected = 3 * length * (attention + 2 * 2 * d * inner)
    assert forward_flops(3, memory) - forward_flops(2, memory) == expected


@pytest.mark.parametrize("unrolled", [0, 2])
def test_recomputation_changes_no_gradient(unrolled):
    settings = {"solver": SHORT, "dropout": 0.3, "pre_norm": True}
    plain, saving = (transformer(recompute=again, **settings) for again in (False, True))
    saving.load_state_dict(plain.state_dict())
    (tokens, targets), memory, results = words(), some_memory(), []
    for model in (plain, saving):
        torch.manual_seed(1)
        loss, _ = model(tokens, targets, memory, unrolled=unrolled)
        results.append((loss.detach(), *torch.autograd.grad(loss.sum(), [*model.parameters()])))
    assert relative_error(*results) < 1e-12


@pytest.mark.parametrize("recompute", [False, True])
def test_autocast_multiplies_in_bfloat16_and_keeps_states_in_float32(recompute):
    model, inner = transformer(solver=SHORT, recompute=recompute).float(), []
    model.cell.feed_forward.dropout.register_forward_pre_hook(
        lambda _m, args: inner.append(args[0].dtype)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, memory = model(*words())
        loss, memory = model(*words(), memory)
        loss.mean().backward()
    assert set(inner) == {torch.bfloat16}
    assert loss.dtype == memory.states.dtype == memory.injections.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in model.parameters())


def saved_hidden_tensors(recompute):
    """Number of tensors of the hidden size on the graph of a feed-forward block."""
    block, sizes = transformer(inner=50, dropout=0.2, recompute=recompute).cell.feed_forward, []

    def pack(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(torch.randn(3, 7, 8))
    return sizes.count(3 * 7 * 50)


def test_recomputation_saves_no_hidden_activation():
    assert saved_hidden_tensors(False) == 2
    assert saved_hidden_tensors(True) == 0
