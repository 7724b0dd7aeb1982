"""Crops and flips of a batch: those of torchvision, image by image, and evenly drawn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as slow

from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.images.cifar import Draws, crop_and_flip, draw

pytestmark = pytest.mark.usefixtures("float32")
ALONE = Share()


def one_by_one(images: Tensor, draws: Draws, padding: int) -> Tensor:
    """Pad, crop, then mirror each image by torchvision."""
    height, width = images.shape[2:]
    found = []
    for image, top, left, flip in zip(images, *draws, strict=True):
        crop = slow.crop(slow.pad(image, [padding] * 4), int(top), int(left), height, width)
        found.append(slow.horizontal_flip(crop) if flip else crop)
    return torch.stack(found)


@pytest.mark.parametrize("shape", [(40, 3, 32, 32), (25, 1, 8, 5)])
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_equals_torchvision_image_by_image(shape: tuple[int, ...], padding: int) -> None:
    images = torch.randint(256, shape, dtype=torch.uint8)
    draws = draw(len(images), padding, ALONE)
    found = crop_and_flip(images, draws, padding)
    assert found.dtype == torch.uint8
    assert torch.equal(found, one_by_one(images, draws, padding))


def test_draws_are_even_and_independent() -> None:
    """Nine rows and nine columns equally often, every second image mirrored: within 5 sigma."""
    count = 20_000
    draws = draw(count, 4, ALONE)
    for shift in (draws.top, draws.left):
        shares = shift.bincount().double() / count
        assert shares.shape == (9,)
        assert (shares - 1 / 9).abs().max() < 5 * (8 / 81 / count) ** 0.5
    assert abs(draws.flip.double().mean() - 0.5) < 5 * 0.5 / count**0.5
    together = torch.stack([d.double() for d in draws])
    off_diagonal = together.corrcoef() - torch.eye(3, dtype=torch.float64)
    assert off_diagonal.abs().max() < 5 / count**0.5


def test_processes_draw_apart_and_stay_in_step() -> None:
    """Other crops in each process, yet the same state of the generator after them."""
    draws, states = [], []
    for process in range(2):
        torch.manual_seed(3)
        draws.append(draw(50, 4, Share(2, process)))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)
    assert all(not torch.equal(a, b) for a, b in zip(*draws, strict=True))
