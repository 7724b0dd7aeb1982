"""Gradients of MDEQ: dense, unrolled, distributed; its masks and weights in one pass."""

from __future__ import annotations

from pathlib import Path

import distributed_worker
import pytest
import torch
import torch.nn.functional as F
from mdeq_small import IMPLICIT, PHANTOM, small
from problems import exact_gradient, relative_error
from torch import Tensor

from phantomgrad import Broyden, GradientEstimator, NeumannPhantomGradient, UnrolledPhantomGradient
from phantomgrad.models import MDEQ
from phantomgrad.nn import VariationalDropout


def test_images_of_a_batch_are_independent() -> None:
    model, images = small().eval(), torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(model(images[:1]), model(images)[:1])


def inside(model: MDEQ) -> list[Tensor]:
    return [*model.stem.parameters(), *model.deq.parameters()]


@pytest.mark.parametrize(
    ("gradient", "exact"),
    [
        (IMPLICIT, True),
        (UnrolledPhantomGradient(80, 0.9), True),
        (NeumannPhantomGradient(80, 0.9), True),
        (UnrolledPhantomGradient(5, 0.5), False),
        (NeumannPhantomGradient(5, 0.5), False),
    ],
)
def test_gradient_is_that_of_a_dense_solve(gradient: GradientEstimator, exact: bool) -> None:
    model, images = small(gradient), torch.randn(2, 3, 4, 4)
    labels = torch.tensor([0, 2])
    u = model.inject(images)
    f, packed, packing = model.deq.close_over((u,), model.start(u))
    z = model.deq.solver.solve(f, packed).z.detach().requires_grad_()
    (v,) = torch.autograd.grad(F.cross_entropy(model.head(packing.unpack(z)), labels), z)
    expected = exact_gradient(f, z.detach(), v, inside(model))
    ours = torch.autograd.grad(F.nll_loss(model(images), labels), inside(model))
    error = relative_error(ours, expected)
    assert error < 1e-9 if exact else 1e-4 < error < 1


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
def test_every_parameter_gets_a_gradient(gradient: GradientEstimator) -> None:
    model = small(gradient, dropout=0.2)
    F.nll_loss(model(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 2, 3])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name


def test_unrolling_is_a_loop_from_zero_on_the_graph() -> None:
    model, images = small(), torch.randn(2, 3, 8, 8)
    model(images)
    u = model.inject(images)
    z = model.start(u)
    for _ in range(4):
        z = model.deq.cell(z, u)
    expected = F.log_softmax(model.head(z), dim=1)
    assert model.deq.last_solution is not None
    ours = model(images, unrolled=4)
    assert model.deq.last_solution is None
    torch.testing.assert_close(ours, expected)
    wanted = list(model.parameters())
    gradients = [torch.autograd.grad(scores[:, 1].sum(), wanted) for scores in (ours, expected)]
    assert relative_error(*gradients) < 1e-12


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)
def test_distributed_gradients_are_those_of_the_global_batch(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(distributed_worker.train_mdeq_half, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    images = distributed_worker.global_images()
    for mode in distributed_worker.MODES:
        halves = [alone(mode, True, half) for half in images.chunk(2)]
        means = tuple((a + b) / 2 for a, b in zip(*halves, strict=True))
        whole = tuple(alone(mode, False, images))
        for found in ranks:
            assert relative_error(tuple(found[mode, True]), means) < 1e-8, mode
            assert relative_error(tuple(found[mode, False]), whole) < 1e-8, mode


def alone(mode: str, batch_statistics: bool, images: Tensor) -> list[Tensor]:
    model = distributed_worker.Multiscale(mode, batch_statistics)
    return distributed_worker.gradients(model, images)


def recorded_masks(model: MDEQ) -> list[Tensor]:
    """Record the dropout masks of the first block at every evaluation."""
    masks: list[Tensor] = []
    model.deq.cell.blocks[0].dropout.register_forward_hook(lambda m, _i, _o: masks.append(m._mask))
    return masks


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
def test_solve_and_gradient_share_one_mask(gradient: GradientEstimator) -> None:
    model = small(gradient, dropout=0.4)
    masks = recorded_masks(model)
    model(torch.randn(3, 3, 8, 8)).sum().backward()
    evaluations = len(masks)
    assert evaluations > 3
    assert all(mask is masks[0] for mask in masks)
    assert masks[0].shape == (3, 4, 1, 1)
    model(torch.randn(3, 3, 8, 8))
    assert masks[evaluations] is not masks[0]


def test_dropout_is_applied_before_the_injection() -> None:
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


def test_states_stay_in_float32_under_autocast() -> None:
    model = small(UnrolledPhantomGradient(2, 0.5), Broyden(max_evaluations=6, tol=1e-2)).float()
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
