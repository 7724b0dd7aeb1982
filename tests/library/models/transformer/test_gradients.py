"""The DEQ-Transformer's equilibrium and its gradients: dense, unrolled, regularised."""

from __future__ import annotations

import pytest
import torch
from problems import exact_gradient as dense_gradient
from problems import newton_equilibrium, relative_error
from torch import Tensor
from transformer_small import ESTIMATORS, IMPLICIT, PRE_NORM, small, some_memory, words

from phantomgrad import (
    FixedPoint,
    GradientEstimator,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.jacobian import jacobian_regularizer

# --- Equilibrium and gradient ----------------------------------------------------------------


@PRE_NORM
def test_output_is_an_equilibrium(pre_norm: bool) -> None:
    model, memory = small(pre_norm=pre_norm).eval(), some_memory()
    tokens, targets = words()
    with torch.no_grad():
        _, after = model(tokens, targets, memory, memory_length=5)
        context = model.context(model.inject(tokens), memory)
        torch.testing.assert_close(model.cell(after.states, context), after.states)
    assert model.deq.last_solution.converged.all()


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
def test_every_parameter_learns(pre_norm: bool, gradient: GradientEstimator) -> None:
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


def test_a_segment_without_words_of_a_cluster_leaves_zeros() -> None:
    model = small()
    model(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.int32))[
        0
    ].sum().backward()
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


# --- Unrolled pretraining --------------------------------------------------------------------


def test_unrolling_is_a_loop_from_zero_on_the_graph() -> None:
    model, (tokens, targets), memory = small(), words(), some_memory()
    context = model.context(model.inject(tokens), memory)
    z = torch.zeros(3, 5, 8)
    for _ in range(3):
        z = model.cell(z, context)
    expected = model.softmax(z.flatten(0, 1), targets.flatten(), model.embedding).view(3, 5)
    ours, _ = model(tokens, targets, memory, unrolled=3)
    torch.testing.assert_close(ours, expected)
    wanted = list(model.parameters())
    gradients = [torch.autograd.grad(loss.mean(), wanted) for loss in (ours, expected)]
    assert relative_error(*gradients) < 1e-12


def test_unrolling_solves_nothing() -> None:
    model = small()
    model(*words())
    assert model.deq.last_solution is not None
    model(*words(), unrolled=2)
    assert model.deq.last_solution is None
