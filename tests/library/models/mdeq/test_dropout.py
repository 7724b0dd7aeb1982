"""MDEQ's masks and weights, drawn and computed once in a pass; evaluation, autocast."""

from __future__ import annotations

import pytest
import torch
from mdeq_small import IMPLICIT, PHANTOM, small
from torch import Tensor

from phantomgrad import Broyden, GradientEstimator, NeumannPhantomGradient, UnrolledPhantomGradient
from phantomgrad.models import MDEQ
from phantomgrad.nn import VariationalDropout


def recorded_masks(model: MDEQ) -> list[Tensor]:
    """The masks of the first block's dropout, at every evaluation from now on."""
    masks: list[Tensor] = []
    model.deq.cell.blocks[0].dropout.register_forward_hook(lambda m, _i, _o: masks.append(m._mask))
    return masks


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
def test_one_mask_serves_solve_and_gradient(gradient: GradientEstimator) -> None:
    model = small(gradient, dropout=0.4)
    masks = recorded_masks(model)
    model(torch.randn(3, 3, 8, 8)).sum().backward()
    evaluations = len(masks)
    assert evaluations > 3
    assert all(mask is masks[0] for mask in masks)
    assert masks[0].shape == (3, 4, 1, 1)
    model(torch.randn(3, 3, 8, 8))
    assert masks[evaluations] is not masks[0]


def test_one_mask_serves_all_unrolled_steps() -> None:
    model = small(dropout=0.4)
    masks = recorded_masks(model)
    for _ in range(2):
        model(torch.randn(3, 3, 8, 8), unrolled=3)
    assert [mask is masks[0] for mask in masks] == [True] * 3 + [False] * 3


def test_dropout_stands_before_the_injection() -> None:
    model = small(dropout=0.5)
    block = model.deq.cell.blocks[0]
    inputs: list[Tensor] = []
    block.norm2.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
    with torch.no_grad():
        u = torch.randn(8, 4, 4, 4)
        block(torch.randn(8, 4, 4, 4), u)
    dropped = (block.dropout._mask == 0).flatten(1)  # (B, C)
    assert dropped.any()
    assert torch.equal(inputs[0][dropped], u[dropped])
    assert not torch.isclose(inputs[0][~dropped], u[~dropped]).all(dim=(1, 2)).any()


@torch.no_grad()
def test_evaluation_is_deterministic_and_reports_the_solve() -> None:
    model, images = small(dropout=0.4).eval(), torch.randn(2, 3, 8, 8)
    assert torch.equal(model(images), model(images))
    assert model.deq.last_solution.converged.all()
    assert all(m._mask is None for m in model.modules() if isinstance(m, VariationalDropout))
    model.train()
    assert not torch.equal(model(images), model(images))


def test_solver_takes_low_precision_maps() -> None:
    model = small(UnrolledPhantomGradient(2, 0.5), Broyden(max_evaluations=6)).float()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z: list[Tensor] = []
        model.head.register_forward_pre_hook(lambda _m, args: z.extend(args[0]))
        scores = model(images)
        scores.sum().backward()
    assert scores.dtype == torch.float32  # and so the loss
    assert {state.dtype for state in z} == {torch.float32}
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("unrolled", [0, 3])
def test_weight_norm_is_computed_once_in_a_forward(unrolled: int) -> None:
    model, images, computed = small(), torch.randn(2, 3, 8, 8), []
    norm = model.deq.cell.blocks[0].conv1.parametrizations.weight[0]
    norm.register_forward_hook(lambda *_: computed.append(1))
    for forward in (1, 2):
        model(images, unrolled=unrolled).sum().backward()
        assert len(computed) == forward
