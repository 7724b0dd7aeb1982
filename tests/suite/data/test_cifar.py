"""CIFAR-10: exact pixels from both formats, its parts and their order."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from data.cifar import MEAN, as_set, ready, whole
from image_data import write_cifar10
from PIL import Image
from training import composed

from phantomgrad_suite.data.images.base import ImageBatch
from phantomgrad_suite.data.images.pixels import CLASSES
from phantomgrad_suite.jobs.build import build

pytestmark = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]


# --- Pixels and labels -----------------------------------------------------------------------


def test_original_files_give_their_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = write_cifar10(tmp_path, monkeypatch)
    data = ready(tmp_path, "cifar10")
    for part, batch in zip(("train", "test"), data.pixels, strict=True):
        assert batch.images.dtype == torch.uint8
        assert np.array_equal(batch.images.numpy(), pixels[part])
        assert batch.labels.tolist() == [*range(10)] * (len(pixels[part]) // 10)


def test_jpeg_files_give_their_pixels(jpeg_root: Path) -> None:
    """In the order of their names: class by class, as Pillow decodes them."""
    train, test = ready(jpeg_root).pixels
    assert train.images.shape == (100, 3, 32, 32)
    assert train.labels.tolist() == [label for label in range(10) for _ in range(10)]
    assert test.labels.tolist() == [label for label in range(10) for _ in range(2)]
    for label, i in ((0, 0), (3, 7), (9, 9)):
        with Image.open(jpeg_root / "cifar10-jpeg/train" / CLASSES[label] / f"000{i}.jpg") as file:
            expected = np.asarray(file).transpose(2, 0, 1)
        assert np.array_equal(train.images[10 * label + i].numpy(), expected)


def test_archive_gives_what_the_folder_gives(jpeg_copy: Path, jpeg_root: Path) -> None:
    with tarfile.open(jpeg_copy / "cifar10-jpeg.tar.xz", "w:xz") as archive:
        for part in ("train", "test"):
            archive.add(jpeg_copy / "cifar10-jpeg" / part, part)
    shutil.rmtree(jpeg_copy / "cifar10-jpeg")
    assert ready(jpeg_copy).facts() == ready(jpeg_root).facts()


def test_module_says_what_it_holds(jpeg_root: Path, cifar_root: Path) -> None:
    data = ready(jpeg_root)
    assert (data.in_channels, data.classes, data.evaluation_sets) == (3, 10, ("test",))
    facts = data.facts()
    assert facts["fingerprint"].startswith("sha256:")
    sizes = {"train": 100, "validation": 0, "test": 20}
    assert facts == {"name": "cifar10-jpeg", "fingerprint": facts["fingerprint"], **sizes}
    original = ready(cifar_root, "cifar10").facts()
    assert original["name"] == "cifar10"
    assert original["fingerprint"] != facts["fingerprint"]


# --- Parts and order -------------------------------------------------------------------------


def test_validation_part_is_stratified_and_disjoint(jpeg_root: Path) -> None:
    data = ready(jpeg_root, validation=30)
    assert data.evaluation_sets == ("test", "validation")
    train, validation = whole(data, "train"), whole(data, "validation")
    assert train.labels.bincount().tolist() == [7] * 10
    assert validation.labels.bincount().tolist() == [3] * 10
    assert not as_set(train.images) & as_set(validation.images)
    assert as_set(train.images) | as_set(validation.images) == as_set(data.pixels.train.images)
    facts = data.facts()
    assert (facts["train"], facts["validation"]) == (70, 30)
    assert facts["fingerprint"] == ready(jpeg_root).facts()["fingerprint"]


def test_validation_part_depends_on_its_seed_alone(jpeg_root: Path) -> None:
    first = whole(ready(jpeg_root, validation=30), "validation").images
    torch.manual_seed(7)
    assert torch.equal(whole(ready(jpeg_root, validation=30), "validation").images, first)
    other = whole(ready(jpeg_root, validation=30, seed=1), "validation").images
    assert not torch.equal(other, first)


def test_subset_is_the_first_images_of_each_class(cifar_root: Path) -> None:
    """Another fingerprint, and said: no table mixes it with the whole."""
    data, complete = ready(cifar_root, "cifar10", subset=3), ready(cifar_root, "cifar10")
    assert torch.equal(data.pixels.train.images, complete.pixels.train.images[:30])
    assert torch.equal(data.pixels.test.images, complete.pixels.test.images)
    facts = data.facts()
    assert facts["train"] == 30
    assert facts["reduced"] == "the first 3 training images of each class"
    assert facts["fingerprint"] != complete.facts()["fingerprint"]


def test_last_batch_is_kept_and_every_image_comes_once(jpeg_root: Path) -> None:
    data = ready(jpeg_root, batch_size=30, test_batch_size=8)
    batches = list(data.train_dataloader())
    assert [len(batch.labels) for batch in batches] == [30, 30, 30, 10]
    assert as_set(torch.cat([b.images for b in batches])) == as_set(data.pixels.train.images)
    assert [len(b.labels) for b in data.val_dataloader()[0]] == [8, 8, 4]
    assert isinstance(batches[0], ImageBatch)


def test_images_keep_their_labels(jpeg_root: Path) -> None:
    data = ready(jpeg_root)
    pixels = data.pixels.train
    known = {image.numpy().tobytes(): int(label) for image, label in zip(*pixels, strict=True)}
    batch = whole(data, "train")
    assert [known[image.numpy().tobytes()] for image in batch.images] == batch.labels.tolist()
    assert not torch.equal(whole(data, "train").labels, batch.labels)


def test_evaluation_has_a_fixed_order_and_draws_nothing(jpeg_root: Path) -> None:
    data = ready(jpeg_root, augment=True)
    before = torch.get_rng_state()
    images = whole(data, "test").images
    data.on_after_batch_transfer(ImageBatch(images, torch.zeros(20)), 0)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(images, data.pixels.test.images)


# --- Configurations --------------------------------------------------------------------------


@pytest.mark.usefixtures("hydra_restore_singletons")
@pytest.mark.parametrize("name", ["cifar10", "cifar10_jpeg"])
def test_configuration_builds(jpeg_root: Path, cifar_root: Path, name: str) -> None:
    """The protocol of the papers: 128 images, all of them, no part held out."""
    root = cifar_root if name == "cifar10" else jpeg_root
    config = composed([f"dataset={name}", f"paths.data={root}"]).dataset
    data = build(config, "dataset")
    assert data.facts() == ready(root, name.replace("_", "-")).facts()
    assert (config.batch_size, config.augment, config.validation, config.subset) == (
        128,
        False,
        0,
        None,
    )


# --- The real data ---------------------------------------------------------------------------


def test_real_images_are_the_known_ones(real_jpeg_root: Path) -> None:
    """All 60,000, of known pixels; their mean and deviation are CIFAR-10's, nearly."""
    data = ready(real_jpeg_root, batch_size=128)
    assert data.facts() == {
        "name": "cifar10-jpeg",
        "fingerprint": "sha256:eec90e10bd2f5438e70e4e8599dc5b7672ffbabf978fde50cd6de1e7ed6d6bf0",
        "train": 50000,
        "validation": 0,
        "test": 10000,
    }
    assert data.pixels.train.labels.bincount().tolist() == [5000] * 10
    assert len(data.train_dataloader()) == 391
    pixels = data.pixels.train.images[::10].double() / 255
    torch.testing.assert_close(
        pixels.mean((0, 2, 3)), torch.tensor(MEAN).double(), atol=0.005, rtol=0
    )
