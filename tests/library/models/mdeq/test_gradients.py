"""MDEQ's equilibrium and its gradients: dense, unrolled, and over two processes."""

from __future__ import annotations

from pathlib import Path

import distributed_worker
import pytest
import torch
import torch.nn.functional as F
from mdeq_small import IMPLICIT, PHANTOM, small
from problems import relative_error
from torch import Tensor

from phantomgrad import GradientEstimator, NeumannPhantomGradient, UnrolledPhantomGradient
from phantomgrad.models import MDEQ

# --- Equilibrium and gradient ----------------------------------------------------------------


def test_equilibrium_holds_on_every_scale() -> None:
    model = small()
    with torch.no_grad():
        u = model.inject(torch.randn(5, 3, 8, 8))
        z, solution = model.deq(u, z0=model.start(u))
        torch.testing.assert_close(model.deq.cell(z, u), z)
    assert solution.converged.all()
    assert solution.z.shape == (5, 4 * 64 + 6 * 16 + 8 * 4)


def test_images_of_a_batch_do_not_see_each_other() -> None:
    model, images = small().eval(), torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(model(images[:1]), model(images)[:1])


def dense_gradients(model: MDEQ, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Of stem and cell by the implicit function theorem, with the Jacobian written out."""
    u = model.inject(images)
    f, packed, packing = model.deq.close_over((u,), model.start(u))
    z = model.deq.solver.solve(f, packed).z.detach().requires_grad_()
    loss = F.cross_entropy(model.head(packing.unpack(z)), labels)
    (v,) = torch.autograd.grad(loss, z)
    jacobian = torch.autograd.functional.jacobian(f, z.detach()).detach()
    adjoint = torch.eye(z.numel()) - jacobian.view(z.numel(), z.numel()).mT
    cotangent = torch.linalg.solve(adjoint, v.flatten()).view_as(z)
    return torch.autograd.grad(f(z.detach()), inside(model), cotangent)


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
    expected = dense_gradients(model, images, labels)
    ours = torch.autograd.grad(F.nll_loss(model(images), labels), inside(model))
    error = relative_error(ours, expected)
    assert error < 1e-9 if exact else 1e-4 < error < 1


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
def test_every_parameter_learns(gradient: GradientEstimator) -> None:
    model = small(gradient, dropout=0.2)
    F.nll_loss(model(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 2, 3])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name


# --- Unrolled pretraining --------------------------------------------------------------------


def test_unrolling_is_a_loop_from_zero_on_the_graph() -> None:
    model, images = small(), torch.randn(2, 3, 8, 8)
    u = model.inject(images)
    z = model.start(u)
    for _ in range(4):
        z = model.deq.cell(z, u)
    expected = F.log_softmax(model.head(z), dim=1)
    ours = model(images, unrolled=4)
    torch.testing.assert_close(ours, expected)
    wanted = list(model.parameters())
    gradients = [torch.autograd.grad(scores[:, 1].sum(), wanted) for scores in (ours, expected)]
    assert relative_error(*gradients) < 1e-12


def test_unrolling_solves_nothing() -> None:
    model, images = small(), torch.randn(2, 3, 8, 8)
    model(images)
    assert model.deq.last_solution is not None
    model(images, unrolled=2)
    assert model.deq.last_solution is None


# --- Several processes -----------------------------------------------------------------------


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
