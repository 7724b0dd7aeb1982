"""Gradients of the DEQ-Transformer, its recomputation, and what it computes once per pass."""

from __future__ import annotations

import pytest
import torch
from problems import exact_gradient as dense_gradient
from problems import newton_equilibrium, relative_error
from torch import Tensor
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode
from transformer_small import (
    ESTIMATORS,
    IMPLICIT,
    PHANTOM,
    PRE_NORM,
    TIGHT,
    small,
    some_memory,
    words,
)

from phantomgrad import (
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.jacobian import jacobian_regularizer
from phantomgrad.models import Memory


@pytest.mark.parametrize(
    ("gradient", "exact"),
    [
        (IMPLICIT, True),
        (UnrolledPhantomGradient(500, 0.9), True),
        (NeumannPhantomGradient(500, 0.9), True),
        (UnrolledPhantomGradient(3, 0.5), False),
    ],
)
@PRE_NORM
def test_gradient_is_that_of_a_dense_solve(
    pre_norm: bool, gradient: GradientEstimator, exact: bool
) -> None:
    model, memory = small(gradient, pre_norm=pre_norm), some_memory()
    tokens, targets = words(length=3)
    wanted = [*model.deq.parameters(), *model.injection.parameters()]
    context = model.context(model.inject(tokens), memory)

    def f(z: Tensor) -> Tensor:
        return model.cell(z, context)  # type: ignore[no-any-return]

    z = newton_equilibrium(f, model.deq.solver.solve(f, torch.zeros(3, 3, 8)).z, steps=1)
    z.requires_grad_()
    loss = model.softmax(z.flatten(0, 1), targets.flatten(), model.embedding).sum()
    (v,) = torch.autograd.grad(loss, z)
    expected = dense_gradient(f, z.detach(), v, wanted)
    ours = torch.autograd.grad(model(tokens, targets, memory)[0].sum(), wanted)
    error = relative_error(ours, expected)
    assert error < 1e-9 if exact else 1e-4 < error < 1


@pytest.mark.parametrize("gradient", ESTIMATORS, ids=lambda g: type(g).__name__)
@PRE_NORM
def test_every_parameter_gets_a_gradient(pre_norm: bool, gradient: GradientEstimator) -> None:
    model = small(
        gradient,
        FixedPoint(max_evaluations=30, tol=1e-6),
        pre_norm=pre_norm,
        dropout=0.2,
        attention_dropout=0.1,
        output_dropout="features",
    )
    model(*words(), some_memory())[0].mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name
        assert parameter.grad.isfinite().all(), name


def test_unused_clusters_get_zero_gradients() -> None:
    model = small()
    loss, _ = model(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.int32))
    loss.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not model.softmax.biases[2].grad.any()


@pytest.mark.parametrize("recompute", [False, True])
@PRE_NORM
def test_jacobian_regularisation_has_its_gradient(pre_norm: bool, recompute: bool) -> None:
    model = small(pre_norm=pre_norm, recompute=recompute)
    u = torch.randn(1, 3, 24, requires_grad=True)
    context, z = model.context(u, some_memory(1)), torch.randn(1, 3, 8)

    def f(x: Tensor) -> Tensor:
        return model.cell(x, context)  # type: ignore[no-any-return]

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


def test_unrolling_does_not_solve() -> None:
    model = small()
    model(*words())
    assert model.deq.last_solution is not None
    model(*words(), unrolled=2)
    assert model.deq.last_solution is None


def forward_flops(evaluations: int, memory: Memory) -> int:
    torch.manual_seed(1)
    model = small(solver=FixedPoint(max_evaluations=evaluations, tol=0))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*words(), memory)
    return counter.get_total_flops()


def test_an_evaluation_does_not_recompute_constants() -> None:
    memory, (length, total, d, inner) = some_memory(), (5, 9, 8, 12)
    attention = 2 * d * (3 * d + d + 3 * total + 1)  # projections, two scores and a mean
    expected = 3 * length * (attention + 2 * 2 * d * inner)
    assert forward_flops(3, memory) - forward_flops(2, memory) == expected


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM])
@pytest.mark.parametrize("unrolled", [0, 3])
def test_distances_and_weight_norm_are_computed_once(
    gradient: GradientEstimator, unrolled: int
) -> None:
    model, computed, evaluated = small(gradient), [], []
    attention = model.cell.attention
    attention.position.register_forward_hook(lambda *_: computed.append("positions"))
    attention.qkv.register_forward_hook(lambda *_: evaluated.append(1))
    normed = [m for m in model.modules() if parametrize.is_parametrized(m)]
    assert len(normed) == 5
    for module in normed:
        module.parametrizations.weight[0].register_forward_hook(lambda *_: computed.append("norm"))
    for forward in (1, 2):
        model(*words(), some_memory(), unrolled=unrolled)[0].sum().backward()
        assert computed.count("positions") == forward
        assert computed.count("norm") == 5 * forward
    assert len(evaluated) > 5


@pytest.mark.parametrize("gradient", [*ESTIMATORS, ImplicitGradient(solver=TIGHT, order=2)])
@pytest.mark.parametrize("unrolled", [0, 2])
def test_recomputation_changes_no_gradient(gradient: GradientEstimator, unrolled: int) -> None:
    solver = FixedPoint(max_evaluations=12, tol=0)
    plain = small(gradient, solver, dropout=0.3, pre_norm=True)
    saving = small(gradient, solver, dropout=0.3, pre_norm=True, recompute=True)
    saving.load_state_dict(plain.state_dict())
    (tokens, targets), memory, results = words(), some_memory(), []
    for model in (plain, saving):
        torch.manual_seed(1)
        loss, _ = model(tokens, targets, memory, unrolled=unrolled)
        results.append((loss.detach(), *torch.autograd.grad(loss.sum(), [*model.parameters()])))
    assert relative_error(*results) < 1e-12


def saved_hidden_tensors(recompute: bool) -> int:
    """Number of tensors of the hidden size on the graph of a feed-forward block."""
    block, sizes = small(inner=50, dropout=0.2, recompute=recompute).cell.feed_forward, []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(torch.randn(3, 7, 8))
    return sizes.count(3 * 7 * 50)


def test_recomputation_saves_no_hidden_activation() -> None:
    assert saved_hidden_tensors(False) == 2
    assert saved_hidden_tensors(True) == 0
