"""Recomputation in the backward pass uses the weights and masks of its own forward pass."""

import copy

import torch
from methods import RecomputedCell, every_estimator
from problems import relative_error

from phantomgrad import DEQ, FixedPoint, UnrolledPhantomGradient
from phantomgrad.nn import NormedLinear, recomputed


def gradients(again, parts):
    """Gradients of two chained passes, taken after a change to evaluation mode."""
    torch.manual_seed(0)
    deq, x = DEQ(RecomputedCell(again), *parts), torch.ones(3, 4)
    torch.manual_seed(1)
    first, _ = deq(x)
    second, _ = deq(first)
    deq.eval()
    return torch.autograd.grad(first.square().sum() + second.sum(), list(deq.parameters()))


@every_estimator
def test_each_pass_keeps_its_weights_and_masks(parts):
    ours, plain = (gradients(again, parts) for again in (True, False))
    assert relative_error(ours, plain) < 1e-12


def test_outside_of_a_pass_the_call_is_ordinary():
    layer, x = NormedLinear(4, 4), torch.randn(3, 4)
    ours, plain = (
        torch.autograd.grad(y.square().sum(), list(layer.parameters()))
        for y in (recomputed(layer, x), layer(x))
    )
    assert relative_error(ours, plain) < 1e-12


def test_a_copy_recomputes_with_its_own_weights():
    """Torch's cache knows the weights of a copied module by the key of the original."""
    deq = DEQ(RecomputedCell(), FixedPoint(), UnrolledPhantomGradient(2, 0.5))
    x = torch.ones(3, 4)
    twin = copy.deepcopy(deq)
    with torch.no_grad():
        twin.cell.outer.parametrizations.weight.original0.mul_(2)
    plain = RecomputedCell(again=False)
    plain.load_state_dict(twin.cell.state_dict())
    found = []
    for layer in (twin, DEQ(plain, deq.solver, deq.gradient)):
        torch.manual_seed(1)
        z, _ = layer(x)
        found.append(torch.autograd.grad(z.square().sum(), list(layer.parameters())))
    assert relative_error(*found) < 1e-12
