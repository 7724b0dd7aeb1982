"""Shared weights and masks of a pass; compiled, checkpointed and autocast layers."""

from dataclasses import replace

import pytest
import torch
from methods import SOLVER, DroppedCell, every_estimator, parameter_gradients
from problems import TanhCell, exact_gradient, relative_error
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from phantomgrad import DEQ, ImplicitGradient


class CountedNorm(nn.Module):
    """A normalisation that counts how often it is computed."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, weight):
        self.calls += 1
        return 0.8 * weight / torch.linalg.matrix_norm(weight)


@every_estimator
def test_parametrized_weights_are_computed_once_with_their_graph(parts):
    cell, norm, x = TanhCell(), CountedNorm(), torch.randn(3, 4)
    parametrize.register_parametrization(cell.linear, "weight", norm)
    deq = DEQ(cell, *parts)
    norm.calls = 0
    for forward in (1, 2, 3):
        gradients = parameter_gradients(deq, x)
        assert norm.calls == forward
    plain = TanhCell()
    plain.linear.weight = nn.Parameter(cell.linear.weight.detach().clone())
    by_weight, by_bias = parameter_gradients(DEQ(plain, *parts), x)
    original = cell.linear.parametrizations["weight"].original
    (through_norm,) = torch.autograd.grad(norm(original), original, by_weight)
    assert relative_error(gradients, (by_bias, through_norm)) < 1e-10


@every_estimator
def test_one_dropout_mask_per_forward(parts):
    cell, x = DroppedCell(), torch.randn(3, 4)
    deq = DEQ(cell, replace(parts.solver, max_evaluations=121), parts.gradient)
    masks = []
    for _ in range(2):
        cell.masks.clear()
        z, solution = deq(x)
        z.sum().backward()
        assert (solution.residual < 1e-6).all()
        assert all(torch.equal(mask, cell.masks[0]) for mask in cell.masks if mask is not None)
        masks.append(cell.masks[0])
    assert not torch.equal(*masks)


def test_the_adjoint_uses_the_mask_of_its_own_forward():
    cell, x = DroppedCell(), torch.randn(3, 4, requires_grad=True)
    deq, expected, results = DEQ(cell, SOLVER, ImplicitGradient(solver=SOLVER)), [], []
    for _ in range(2):
        z, _ = deq(x)
        results.append(z)
        f = lambda z, mask=cell.masks[-1]: mask * TanhCell.forward(cell, z, x)  # noqa: E731
        expected.append(exact_gradient(f, z.detach(), torch.ones(3, 4), [x])[0])
    (ours,) = torch.autograd.grad((results[0] + results[1]).sum(), x)
    assert relative_error((ours,), (expected[0] + expected[1],)) < 1e-9


class Checkpointed(TanhCell):
    """A cell that keeps only its arguments."""

    def forward(self, z, x):
        return checkpoint(super().forward, z, x, use_reentrant=False)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@every_estimator
def test_compiled_and_checkpointed_cells_give_equal_gradients(parts):
    cell, x = TanhCell(), torch.randn(3, 4)
    expected = parameter_gradients(DEQ(cell, *parts), x)
    for other in (torch.compile(cell, backend="eager"), Checkpointed()):
        assert relative_error(parameter_gradients(DEQ(other, *parts), x), expected) < 1e-12


@every_estimator
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_gives_equal_gradients(parts, reentrant):
    deq = DEQ(TanhCell(), replace(parts.solver, max_evaluations=8, tol=0), parts.gradient)
    x, gradients = torch.randn(3, 4, requires_grad=True), []
    for z in (deq(x).z, checkpoint(lambda x: deq(x).z, x, use_reentrant=reentrant)):
        v = torch.ones_like(z)
        z.backward(v)
        gradients.append(tuple(t.grad.clone() for t in (x, *deq.parameters())))
        x.grad = None
        deq.zero_grad()
    assert relative_error(*gradients) < 1e-12


@every_estimator
def test_autocast_keeps_the_state_in_full_precision(parts):
    cell, x = TanhCell().float(), torch.randn(3, 4, dtype=torch.float32)
    coarse = replace(parts.solver, tol=1e-2)
    gradient = parts.gradient
    if isinstance(gradient, ImplicitGradient):
        gradient = replace(gradient, solver=replace(gradient.solver, tol=1e-2))
    deq = DEQ(cell, coarse, gradient)
    expected = parameter_gradients(deq, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z, _ = deq(x)
        loss = z.square().sum()
    assert z.dtype == torch.float32
    ours = torch.autograd.grad(loss, list(deq.parameters()))
    assert relative_error(ours, expected) < 0.1
