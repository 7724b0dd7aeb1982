"""CIFAR-10: exact pixels from both formats, its parts, its order, and its way to the device."""

from __future__ import annotations

import logging
import shutil
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from image_data import write_cifar10, write_image
from phantomgrad.data import Cifar10
from phantomgrad.data.base import Share
from phantomgrad.data.images.base import ImageBatch, evaluated
from phantomgrad.data.images.pixels import CLASSES
from phantomgrad.errors import MissingDataError, UserError
from phantomgrad.experiments import build
from phantomgrad.survival import RandomState
from recorder import Recorder, trainer
from training import composed

pytestmark = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
Jpeg = partial(Cifar10, name="cifar10-jpeg")


def ready(root: Path, name: str = "cifar10-jpeg", **options: Any) -> Cifar10:
    data = Cifar10(root=str(root), name=name, **options)
    data.setup()
    return data


def whole(data: Cifar10, part: str) -> ImageBatch:
    """Return a part in one batch, as its loader gives it."""
    loaders = dict(zip(data.evaluation_sets, data.val_dataloader(), strict=True))
    loader = data.train_dataloader() if part == "train" else loaders[part]
    return ImageBatch(*(torch.cat(tensors) for tensors in zip(*loader, strict=True)))


def as_set(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


@pytest.fixture
def copy(jpeg_root: Path, tmp_path: Path) -> Path:
    """A copy of the JPEG files alone, to be damaged."""
    shutil.copytree(jpeg_root / "cifar10-jpeg", tmp_path / "copy" / "cifar10-jpeg")
    return tmp_path / "copy"


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


def test_archive_gives_what_the_folder_gives(copy: Path, jpeg_root: Path) -> None:
    with tarfile.open(copy / "cifar10-jpeg.tar.xz", "w:xz") as archive:
        for part in ("train", "test"):
            archive.add(copy / "cifar10-jpeg" / part, part)
    shutil.rmtree(copy / "cifar10-jpeg")
    assert ready(copy).facts() == ready(jpeg_root).facts()


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


# --- The cache -------------------------------------------------------------------------------


def test_images_are_decoded_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ready(copy)
    monkeypatch.setattr("phantomgrad.data.images.pixels._decoded", None)
    second = ready(copy)
    assert torch.equal(second.pixels.train.images, first.pixels.train.images)
    assert second.facts() == first.facts()
    assert [path.name for path in copy.iterdir() if path.is_file()] == ["cifar10-jpeg.pt"]


@pytest.mark.parametrize("damage", ["a bit", "the end"])
def test_damaged_cache_is_said_and_made_again(
    copy: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    before, cache = ready(copy).facts(), copy / "cifar10-jpeg.pt"
    content = bytearray(cache.read_bytes())
    if damage == "a bit":
        content[len(content) // 2] ^= 1
    else:
        del content[len(content) // 2 :]
    cache.write_bytes(content)
    assert ready(copy).facts() == before
    assert f"{cache} is damaged: it is made again" in caplog.text
    caplog.clear()
    assert ready(copy).facts() == before
    assert caplog.text == ""


def test_cache_of_other_images_is_made_again(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = ready(copy).facts()
    write_image(copy / "cifar10-jpeg/train/cat/0000.jpg", np.random.default_rng(9), 32, 32)
    assert ready(copy).facts()["fingerprint"] != before["fingerprint"]
    assert "is of other data: it is made again" in caplog.text


def test_nothing_is_written_into_a_read_only_folder(
    copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even by root, whom the file system would let."""
    copy.chmod(0o555)
    assert ready(copy).facts()["train"] == 100
    copy.chmod(0o755)
    assert "could not be written ([Errno 13] the folder is read-only" in caplog.text
    assert [path.name for path in copy.iterdir()] == ["cifar10-jpeg"]


def test_full_disk_is_no_failure(
    copy: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("phantomgrad.data.cache.torch.save", full)
    assert ready(copy).facts()["train"] == 100
    assert "could not be written" in caplog.text
    assert [path.name for path in copy.iterdir()] == ["cifar10-jpeg"]


def test_decoding_is_said(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "phantomgrad")
    ready(copy)
    assert f"decoding the images of {copy / 'cifar10-jpeg'}, once" in caplog.text


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


# --- On the device ---------------------------------------------------------------------------


def expected(images: Tensor) -> Tensor:
    """Normalised as the papers do: scaled to [0, 1], then by mean and deviation per channel."""
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, DEVIATION))
    return (images.float() / 255 - mean) / deviation


def test_batches_are_normalised_and_evaluation_is_not_augmented(jpeg_root: Path) -> None:
    data, module = ready(jpeg_root, augment=True, test_batch_size=7), Recorder()
    trainer(1).fit(module, data)
    torch.testing.assert_close(module.images("test"), expected(data.pixels.test.images))
    assert module.images().shape == (100, 3, 32, 32)
    assert not as_set(module.images()) & as_set(expected(data.pixels.train.images))


def test_training_without_augmentation_shows_the_images(jpeg_root: Path) -> None:
    data, module = ready(jpeg_root), Recorder()
    trainer(1).fit(module, data)
    assert as_set(module.images()) == as_set(data.on_after_batch_transfer(data.pixels.train, 0)[0])


def test_precision_of_the_trainer_is_that_of_the_batches(jpeg_root: Path) -> None:
    module = Recorder()
    trainer(1, precision="64-true").fit(module, ready(jpeg_root))
    assert module.images().dtype == torch.float64


def test_resumed_run_sees_what_the_uninterrupted_one_sees(jpeg_root: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"augment": True, "batch_size": 30}

    def fit(epochs: int, checkpoint: Path | None = None) -> Recorder:
        torch.manual_seed(0)
        module, loop = Recorder(), trainer(epochs, callbacks=[RandomState()])
        loop.fit(module, ready(jpeg_root, **options), ckpt_path=checkpoint, weights_only=True)
        loop.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return module

    complete, first, rest = fit(3), fit(2), fit(3, tmp_path / "2.ckpt")
    resumed = torch.cat([first.images(), rest.images()])
    assert torch.equal(resumed, complete.images())
    assert torch.equal(rest.scale, complete.scale)
    assert not torch.equal(complete.images()[:100], complete.images()[100:200])


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_two_processes_take_disjoint_parts(
    jpeg_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they see all of an epoch, and each evaluation image exactly once."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    data = Jpeg(root=str(jpeg_root), batch_size=15, test_batch_size=8, validation=31)
    loop = trainer(1, devices=2, strategy="ddp_fork")
    loop.fit(Recorder(tmp_path), data)
    seen = [torch.load(tmp_path / f"seen{rank}.pt") for rank in range(2)]
    pixels = ready(jpeg_root, validation=31)
    for rank in range(2):
        assert [len(labels) for _, labels in seen[rank]["train"]] == [15, 15, 5]
    parts = {part: [torch.cat([i for i, _ in s[part]]) for s in seen] for part in ("train", "test")}
    shown, held = (expected(whole(pixels, part).images) for part in ("train", "validation"))
    first, second = (as_set(images) for images in parts["train"])
    assert len(first & second) == 1  # 69 images: the first of the order makes the parts equal
    assert first | second == as_set(shown)
    tested = torch.cat(parts["test"])
    assert len(tested) == 20 + 31
    assert as_set(tested) == as_set(held) | as_set(expected(pixels.pixels.test.images))


def test_processes_that_would_wait_for_each_other_are_refused(jpeg_root: Path) -> None:
    """Twenty images for three processes are 7, 7 and 6: two batches of six, or one."""
    part = ready(jpeg_root)._parts["test"]
    assert len(evaluated(part, 5, Share(3, 2), "dataset.test_batch_size")) == 6
    message = "dataset.test_batch_size gives 3 processes different numbers of batches of 20 images"
    with pytest.raises(UserError, match=f"^{message}: choose another than 6, or fewer processes$"):
        evaluated(part, 6, Share(3, 2), "dataset.test_batch_size")


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


# --- What can be wrong -----------------------------------------------------------------------


def test_missing_data_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as error:
        Cifar10(root=str(tmp_path))
    assert str(error.value) == (
        f"CIFAR-10 is not in {tmp_path}: fetch it with `python scripts/fetch_data.py CIFAR10` "
        "(or, without network, add `--from DIR`), or set dataset.root"
    )
    with pytest.raises(MissingDataError, match=r"^cifar10-jpeg is not in .* CIFAR10-JPEG --from"):
        Jpeg(root=str(tmp_path))


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_damaged_original_file_is_named(cifar_root: Path, damage: str) -> None:
    path = cifar_root / "cifar-10-batches-py" / "data_batch_3"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"^data_batch_3 in .* are missing or damaged: delete that"):
        ready(cifar_root, "cifar10")


def test_unreadable_image_is_named(copy: Path) -> None:
    path = copy / "cifar10-jpeg/test/dog/0001.jpg"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UserError, match=r"cifar10-jpeg/test/dog/0001.jpg is no readable image \("):
        ready(copy)
    assert not (copy / "cifar10-jpeg.pt").exists()


def test_image_of_another_size_is_named(copy: Path) -> None:
    write_image(copy / "cifar10-jpeg/train/dog/0001.jpg", np.random.default_rng(0), 48, 32)
    with pytest.raises(UserError, match=r"dog/0001.jpg must be 32 x 32 pixels, is 32 x 48$"):
        ready(copy)


@pytest.mark.parametrize("lost", ["frog/0009.jpg", "frog"])
def test_missing_images_are_counted(copy: Path, lost: str) -> None:
    path = copy / "cifar10-jpeg/train" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    left = 9 if lost.endswith(".jpg") else 0
    with pytest.raises(UserError, match=rf"train/frog holds {left} images, other classes 10"):
        ready(copy)


def test_truncated_archive_is_said(copy: Path) -> None:
    with tarfile.open(copy / "cifar10-jpeg.tar.xz", "w:xz") as archive:
        archive.add(copy / "cifar10-jpeg/train", "train")
    shutil.rmtree(copy / "cifar10-jpeg")
    path = copy / "cifar10-jpeg.tar.xz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"cifar10-jpeg.tar.xz is no whole archive \("):
        ready(copy)


def test_unknown_name_is_refused(jpeg_root: Path) -> None:
    with pytest.raises(UserError, match="one of cifar10, cifar10-jpeg, got 'cifar100'"):
        Cifar10(root=str(jpeg_root), name="cifar100")


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("batch_size", 0, 1),
        ("test_batch_size", 0, 1),
        ("validation", -1, 0),
        ("subset", 0, 1),
        ("seed", -1, 0),
    ],
)
def test_too_small_arguments_are_refused(
    jpeg_root: Path, name: str, value: int, least: int
) -> None:
    with pytest.raises(ValueError, match=rf"dataset\.{name} must be at least {least}, got {value}"):
        Jpeg(root=str(jpeg_root), **{name: value})


@pytest.mark.parametrize("count", [9, 91])
def test_validation_part_without_every_class_is_refused(jpeg_root: Path, count: int) -> None:
    with pytest.raises(UserError, match=rf"dataset.validation must lie in \[10, 90\] .* {count}"):
        ready(jpeg_root, validation=count)


def test_subset_larger_than_the_classes_is_refused(jpeg_root: Path) -> None:
    with pytest.raises(UserError, match=r"dataset\.subset must be at most 10, got 11"):
        ready(jpeg_root, subset=11)


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
