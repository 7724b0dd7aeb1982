"""The convolutional model: its equation, its equilibrium, its gradient, its bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from problems import exact_gradient, relative_error
from torch import Tensor

from phantomgrad import (
    Anderson,
    FixedPoint,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
    spectral_radius,
)
from phantomgrad.gradients import GradientEstimator
from phantomgrad.models import ConvolutionalCell, ImageClassifier

SOLVER = FixedPoint(max_evaluations=500, tol=1e-14)
IMPLICIT = ImplicitGradient(solver=SOLVER)


def tiny(gradient: GradientEstimator = IMPLICIT, **settings: Any) -> ImageClassifier:
    """Four channels on images of 3 x 3 pixels, well inside the region of contraction."""
    sizes = {"channels": 4, "groups": 2, "kappa": 0.4, "pooled": 2, **settings}
    return ImageClassifier(2, 3, SOLVER, gradient, **sizes)


def normalise(x: Tensor, groups: int) -> Tensor:
    """Group normalisation by its definition, without weights."""
    grouped = x.view(x.shape[0], groups, -1)
    variance = grouped.var(dim=2, unbiased=False, keepdim=True)
    return ((grouped - grouped.mean(dim=2, keepdim=True)) / (variance + 1e-5).sqrt()).view_as(x)


def test_cell_is_its_equation() -> None:
    cell = ConvolutionalCell(4, 2, 0.7)
    z, x = torch.randn(3, 4, 5, 6), torch.randn(3, 4, 5, 6)
    kept = z.clone(), x.clone()
    hidden = F.relu(F.conv2d(z, cell.first.weight, cell.first.bias, padding=1))
    branch = F.conv2d(hidden, cell.second.weight, cell.second.bias, padding=1)
    torch.testing.assert_close(cell(z, x), normalise(F.relu(x + branch), 2))
    assert torch.equal(z, kept[0])
    assert torch.equal(x, kept[1])


def test_model_is_its_equation() -> None:
    model = tiny()
    images = torch.randn(2, 2, 4, 4)
    x = normalise(F.conv2d(images, model.stem.weight, padding=1), 2)
    z = torch.zeros_like(x)
    for _ in range(200):
        z = model.deq.cell(z, x)
    features = z.unflatten(2, (2, 2)).unflatten(4, (2, 2)).mean(dim=(3, 5)).flatten(1)
    logits = features @ model.output.weight.mT + model.output.bias
    torch.testing.assert_close(model(images), logits - logits.exp().sum(1, keepdim=True).log())


def test_size_is_the_documented_one() -> None:
    model = ImageClassifier(1, 10, SOLVER, IMPLICIT)
    parameters = list(model.parameters())
    assert sum(p.numel() for p in parameters) == 144 + 32 + 2 * 2_320 + 32 + 2_570 == 7_418
    assert all(p.requires_grad for p in parameters)


def test_images_of_a_batch_are_independent() -> None:
    model, images = tiny(), torch.randn(4, 2, 3, 3)
    torch.testing.assert_close(model(images[:1]), model(images)[:1])


@pytest.mark.parametrize(
    ("gradient", "exact"),
    [
        (IMPLICIT, True),
        (UnrolledPhantomGradient(200, 0.9), True),
        (NeumannPhantomGradient(200, 0.9), True),
        (UnrolledPhantomGradient(1, 1.0), False),
    ],
)
def test_gradient_is_that_of_a_dense_solve(gradient: GradientEstimator, exact: bool) -> None:
    model, images, labels = tiny(gradient), torch.randn(2, 2, 3, 3), torch.tensor([0, 2])
    x = model.norm(model.stem(images))
    z = model.deq(x)[0].detach().requires_grad_()
    pooled = F.adaptive_avg_pool2d(z, model.pooled).flatten(1)
    loss = F.nll_loss(F.log_softmax(model.output(pooled), dim=1), labels)
    (v,) = torch.autograd.grad(loss, z)
    inside = [*model.stem.parameters(), *model.norm.parameters(), *model.deq.parameters()]
    expected = exact_gradient(lambda s: model.deq.cell(s, x), z.detach(), v, inside)
    ours = torch.autograd.grad(F.nll_loss(model(images), labels), inside)
    error = relative_error(ours, expected)
    assert error < 1e-9 if exact else 1e-3 < error < 1


def sizes(cell: ConvolutionalCell) -> Tensor:
    """Largest singular values of the two kernels as matrices."""
    kernels = torch.stack([c.weight.detach().flatten(1) for c in (cell.first, cell.second)])
    return torch.linalg.svdvals(kernels).amax(dim=1)


@pytest.mark.parametrize("kappa", [0.3, 0.7])
def test_kernels_are_small_from_the_start_and_after_projection(kappa: float) -> None:
    model = ImageClassifier(1, 10, SOLVER, IMPLICIT, kappa=kappa)
    assert sizes(model.deq.cell).max() <= kappa + 1e-12
    direction = F.normalize(model.deq.cell.first.weight.detach().flatten(), dim=0)
    with torch.no_grad():
        model.deq.cell.first.weight.mul_(100)
    model.project_()
    assert sizes(model.deq.cell)[0].item() == pytest.approx(kappa)
    after = F.normalize(model.deq.cell.first.weight.detach().flatten(), dim=0)
    torch.testing.assert_close(after, direction)
    with torch.no_grad():
        small = model.deq.cell.first.weight.mul_(0.1).clone()
    model.project_()
    assert torch.equal(model.deq.cell.first.weight, small)


def test_new_model_converges_in_single_precision() -> None:
    solver = Anderson(max_evaluations=40, tol=1e-3)
    model = ImageClassifier(1, 10, solver, IMPLICIT).float()
    x = model.norm(model.stem(torch.randn(64, 1, 8, 8, dtype=torch.float32)))
    with torch.no_grad():
        z, solution = model.deq(x)
    assert solution.converged.all()
    assert solution.evaluations.max() <= 15
    assert spectral_radius(lambda s: model.deq.cell(s, x), z).max() < 0.9


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"groups": 0}, "groups must be at least 1, got 0"),
        ({"groups": 3}, "channels must be a multiple of groups = 3, got 4"),
        ({"kappa": 0.0}, "kappa must be positive, got 0"),
    ],
)
def test_bad_arguments_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**bad)
