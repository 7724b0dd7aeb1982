"""CIFAR-10: exact pixels, its parts and their order, its way to the device."""

import numpy as np
import torch
from data.images.helpers import QUIET, as_set, cifar, fit, normalised, whole
from image_data import write_cifar10
from torchvision.transforms.v2 import functional as slow

from phantomgrad_suite.data import ImageBatch
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.images.cifar import averaged, random_crops

pytestmark = QUIET
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def test_original_files_give_their_pixels(tmp_path, monkeypatch):
    pixels = write_cifar10(tmp_path, monkeypatch)
    data = cifar(tmp_path, "cifar10")
    for part, batch in data.pixels.items():
        assert batch.images.dtype == torch.uint8
        assert np.array_equal(batch.images.numpy(), pixels[part])
        assert batch.labels.tolist() == [*range(10)] * (len(pixels[part]) // 10)
    assert "reduced" not in data.facts()


def test_averaged_pixels_are_rounded_means():
    images = torch.randint(256, (2, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    means = images.double().view(2, 3, 8, 4, 8, 4).mean((3, 5))
    assert (averaged(images.byte(), 8) - means).abs().max() <= 0.5
    assert averaged(images, 32) is images


def test_validation_part_is_stratified_and_depends_on_its_seed_alone(cifar_root):
    data = cifar(cifar_root, validation=30)
    assert data.evaluation_sets == ("test", "validation")
    train, validation = whole(data, "train"), whole(data, "validation")
    assert train.labels.bincount().tolist() == [7] * 10
    assert validation.labels.bincount().tolist() == [3] * 10
    assert as_set(train.images) | as_set(validation.images) == as_set(data.pixels["train"].images)
    facts = data.facts()
    assert (facts["train"], facts["validation"]) == (70, 30)
    assert facts["fingerprint"] == cifar(cifar_root).facts()["fingerprint"]
    torch.manual_seed(7)
    again, other = (cifar(cifar_root, validation=30, seed=seed) for seed in (42, 1))
    assert torch.equal(whole(again, "validation").images, validation.images)
    assert not torch.equal(whole(other, "validation").images, validation.images)


def test_every_image_comes_once_with_its_label(cifar_root):
    data = cifar(cifar_root, batch_size=30, test_batch_size=8)
    batches = list(data.train_dataloader())
    assert isinstance(batches[0], ImageBatch)
    assert [len(batch.labels) for batch in batches] == [30, 30, 30, 10]
    pixels = data.pixels["train"]
    known = {image.numpy().tobytes(): int(label) for image, label in zip(*pixels, strict=True)}
    images, labels = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    assert as_set(images) == set(known)
    assert [known[image.numpy().tobytes()] for image in images] == labels.tolist()
    assert not torch.equal(whole(data, "train").labels, labels)
    assert [len(b.labels) for b in data.val_dataloader()[0]] == [8, 8, 4]


def test_crops_are_those_of_torchvision_image_by_image():
    images = torch.randint(256, (40, 3, 32, 28), dtype=torch.uint8)
    torch.manual_seed(3)
    found = random_crops(images, Share())
    torch.manual_seed(3)
    (top, left), flip = torch.randint(9, (2, 40)).tolist(), torch.randint(2, (40,)).tolist()
    for i, image in enumerate(images):
        crop = slow.crop(slow.pad(image, [4] * 4), top[i], left[i], 32, 28)
        assert torch.equal(found[i], slow.horizontal_flip(crop) if flip[i] else crop)


def test_processes_draw_apart_and_stay_in_step():
    """The crops differ between processes, but the generator has the same state after them."""
    images = torch.randint(256, (50, 3, 32, 32), dtype=torch.uint8)

    def crops(process):
        torch.manual_seed(3)
        return random_crops(images, Share(2, process)), torch.get_rng_state()

    (first, state), (second, other) = crops(0), crops(1)
    assert torch.equal(state, other)
    assert not torch.equal(first, second)


def test_batches_are_normalised_and_evaluation_is_not_augmented(cifar_root):
    data = cifar(cifar_root, augment=True, test_batch_size=7)
    module = fit(data, 1)
    expected = normalised(data.pixels["test"].images, MEAN, DEVIATION)
    torch.testing.assert_close(module.images("test"), expected)
    plain = as_set(data.on_after_batch_transfer(data.pixels["train"], 0).images)
    assert not as_set(module.images()) & plain
    assert as_set(fit(cifar(cifar_root), 1).images()) == plain
