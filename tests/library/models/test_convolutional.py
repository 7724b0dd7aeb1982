"""The convolutional model: its equation, its equilibrium, its bound."""

import pytest
import torch
import torch.nn.functional as F
from small_models import IMPLICIT, TIGHT, convolutional

from phantomgrad import Anderson, spectral_radius
from phantomgrad.models import ConvolutionalCell, ImageClassifier


def normalise(x, groups):
    """Group normalisation by its definition, without weights."""
    grouped = x.view(x.shape[0], groups, -1)
    variance = grouped.var(dim=2, unbiased=False, keepdim=True)
    return ((grouped - grouped.mean(dim=2, keepdim=True)) / (variance + 1e-5).sqrt()).view_as(x)


def test_cell_is_its_equation():
    cell = ConvolutionalCell(4, 2, 0.7)
    z, x = torch.randn(3, 4, 5, 6), torch.randn(3, 4, 5, 6)
    hidden = F.relu(F.conv2d(z, cell.first.weight, cell.first.bias, padding=1))
    branch = F.conv2d(hidden, cell.second.weight, cell.second.bias, padding=1)
    torch.testing.assert_close(cell(z, x), normalise(F.relu(x + branch), 2))
    assert (z._version, x._version) == (0, 0)  # not modified in place


def test_model_is_its_equation():
    model, images = convolutional(), torch.randn(2, 3, 4, 4)
    x = normalise(F.conv2d(images, model.stem.weight, padding=1), 2)
    z = torch.zeros_like(x)
    for _ in range(200):
        z = model.deq.cell(z, x)
    features = z.unflatten(2, (2, 2)).unflatten(4, (2, 2)).mean(dim=(3, 5)).flatten(1)
    logits = features @ model.output.weight.mT + model.output.bias
    torch.testing.assert_close(model(images), logits - logits.exp().sum(1, keepdim=True).log())


def test_size_is_the_documented_one():
    model = ImageClassifier(1, 10, TIGHT, IMPLICIT)
    parameters = list(model.parameters())
    assert sum(p.numel() for p in parameters) == 144 + 32 + 2 * 2_320 + 32 + 2_570 == 7_418
    assert all(p.requires_grad for p in parameters)


def sizes(cell):
    """Largest singular values of the two kernels as matrices."""
    kernels = torch.stack([c.weight.detach().flatten(1) for c in (cell.first, cell.second)])
    return torch.linalg.svdvals(kernels).amax(dim=1)


@pytest.mark.parametrize("kappa", [0.3, 0.7])
def test_kernels_are_small_from_the_start_and_after_projection(kappa):
    """A projection keeps the direction of a kernel, and all of a small one."""
    model = ImageClassifier(1, 10, TIGHT, IMPLICIT, kappa=kappa)
    assert sizes(model.deq.cell).max() <= kappa + 1e-12
    kernel = model.deq.cell.first.weight.detach()
    direction = F.normalize(kernel.flatten(), dim=0)
    kernel.mul_(100)
    model.project_()
    assert sizes(model.deq.cell)[0].item() == pytest.approx(kappa)
    torch.testing.assert_close(F.normalize(kernel.flatten(), dim=0), direction)
    small = kernel.mul_(0.1).clone()
    model.project_()
    assert torch.equal(kernel, small)


def test_new_model_converges_in_single_precision():
    solver = Anderson(max_evaluations=40, tol=1e-3)
    model = ImageClassifier(1, 10, solver, IMPLICIT).float()
    x = model.norm(model.stem(torch.randn(16, 1, 8, 8, dtype=torch.float32)))
    with torch.no_grad():
        z, solution = model.deq(x)
    assert solution.converged.all()
    assert solution.evaluations.max() <= 15
    assert spectral_radius(lambda s: model.deq.cell(s, x), z).max() < 0.9
