"""What the DEQ-Transformer computes once in a pass, and what it computes again."""

from __future__ import annotations

import pytest
import torch
from problems import relative_error
from torch import Tensor
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode
from transformer_small import ESTIMATORS, IMPLICIT, PHANTOM, TIGHT, small, some_memory, words

from phantomgrad import FixedPoint, GradientEstimator, ImplicitGradient
from phantomgrad.models import Memory

# --- What is computed once -------------------------------------------------------------------


def forward_flops(evaluations: int, memory: Memory) -> int:
    torch.manual_seed(1)
    model = small(solver=FixedPoint(max_evaluations=evaluations, tol=0))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*words(), memory)
    return counter.get_total_flops()


def test_an_evaluation_does_not_pay_for_what_is_constant() -> None:
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


# --- Recomputation ---------------------------------------------------------------------------


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


@pytest.mark.parametrize("gradient", ESTIMATORS)
def test_recomputation_has_the_masks_of_its_own_pass(gradient: GradientEstimator) -> None:
    solver = FixedPoint(max_evaluations=12, tol=0)
    plain = small(gradient, solver, dropout=0.3)
    saving = small(gradient, solver, dropout=0.3, recompute=True)
    saving.load_state_dict(plain.state_dict())
    (tokens, targets), results = words(), []
    for model in (plain, saving):
        torch.manual_seed(1)
        first, memory = model(tokens, targets)
        second, _ = model(tokens, targets, memory)
        model.eval()
        loss = (first + second).sum()
        results.append(torch.autograd.grad(loss, [*model.parameters()]))
    assert relative_error(*results) < 1e-12


def kept_in_the_middle(recompute: bool) -> int:
    """How many tensors of the size of the middle the graph of a feed-forward block keeps."""
    block, sizes = small(inner=50, dropout=0.2, recompute=recompute).cell.feed_forward, []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(torch.randn(3, 7, 8))
    return sizes.count(3 * 7 * 50)


def test_recomputation_keeps_nothing_of_the_middle() -> None:
    assert kept_in_the_middle(False) == 2
    assert kept_in_the_middle(True) == 0
