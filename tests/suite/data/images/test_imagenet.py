"""ImageNet from class folders: the two protocols, the order, the workers, the validation part."""

import shutil

import numpy as np
import pytest
import torch
from data.images.helpers import QUIET, fit, imagenet, normalised
from image_data import write_damaged_png, write_huge_png, write_image, write_image_folder
from PIL import Image
from recorder import Recorder, trainer

from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.images.base import ImageBatch
from phantomgrad_suite.data.images.imagenet import FolderSet, SeededOrder, transform
from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = QUIET
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_facts_and_sizes(folder_root):
    data = imagenet(folder_root)
    assert (data.sizes(), data.evaluation_sets) == ({"in_channels": 3, "classes": 3}, ("test",))
    facts = data.facts()
    assert facts.pop("fingerprint").startswith("sha256-of-names-and-sizes:")
    assert facts == {"name": "imagenet", "classes": 3, "train": 12, "test": 5}


def test_fingerprint_tells_data_sets_apart(folder_root, folder_copy):
    same = imagenet(folder_copy).facts()
    assert same == imagenet(folder_root).facts()
    (folder_copy / "train/n00000001/0000.JPEG").rename(folder_copy / "train/n00000002/0009.JPEG")
    assert imagenet(folder_copy).facts()["fingerprint"] != same["fingerprint"]


def test_batches_are_bytes_and_complete(folder_root):
    data = imagenet(folder_root, test_batch_size=2)
    batches = list(data.train_dataloader())
    assert [batch.images.shape for batch in batches] == [(n, 3, 224, 224) for n in (5, 5, 2)]
    assert all(isinstance(batch, ImageBatch) for batch in batches)
    assert batches[0].images.dtype == torch.uint8
    assert torch.cat([batch.labels for batch in batches]).bincount().tolist() == [4, 4, 4]
    (evaluation,) = data.val_dataloader()
    assert [batch.labels.tolist() for batch in evaluation] == [[0, 0], [1, 2], [2]]


def test_evaluation_images_are_resized_cropped_and_normalised(folder_root):
    """The shorter side becomes 256; the central 224 pixels are normalised by channel."""
    module = fit(imagenet(folder_root), 1)
    paths = sorted((folder_root / "val").glob("*/*.JPEG"))
    for path, found in zip(paths, module.images("test"), strict=True):
        with Image.open(path) as image:
            scale = 256 / min(image.size)
            size = [int(side * scale) for side in image.size]
            resized = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
        top, left = (round((side - 224) / 2) for side in resized.shape[:2])
        pixels = torch.from_numpy(resized[top : top + 224, left : left + 224].copy())
        expected = normalised(pixels.permute(2, 0, 1), MEAN, DEVIATION)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("protocol", "area", "aspect"),
    [("mdeq", (0.08, 1.0), (3 / 4, 4 / 3)), ("phantom", (0.1, 1.0), (0.8, 1.25))],
)
def test_protocols_crop_within_their_bounds(protocol, area, aspect):
    crop, flip, _ = transform(protocol).transforms
    assert (crop.scale, crop.ratio, flip.p) == (area, aspect, 0.5)
    assert (tuple(crop.size), crop.antialias) == ((224, 224), True)
    assert str(crop.interpolation).lower().endswith("bilinear")


def test_order_and_crops_change_with_epoch_and_seed_alone(folder_root):
    """They do not depend on other random draws or on the number of workers."""
    runs = [fit(imagenet(folder_root, workers=workers), 2) for workers in (0, 1)]
    assert torch.equal(runs[0].images(), runs[1].images())
    first, second = runs[0].images().split(12)
    assert not torch.equal(first.sort(dim=0).values, second.sort(dim=0).values)
    torch.manual_seed(5)
    other = Recorder()
    trainer(1).fit(other, imagenet(folder_root))
    assert not torch.equal(other.images(), first)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_order_is_resumed_in_the_middle_of_an_epoch(folder_root, workers):
    """The number of processes that read ahead does not matter."""
    whole = imagenet(folder_root, workers=workers, batch_size=2).train_dataloader()
    expected = torch.cat([batch.images for batch in whole])
    loader = imagenet(folder_root, workers=workers, batch_size=2).train_dataloader()
    loader.load_state_dict({**loader.state_dict(), "batches": 4})
    assert torch.equal(torch.cat([batch.images for batch in loader]), expected[8:])
    assert torch.equal(torch.cat([batch.images for batch in loader]), expected)


def test_processes_take_disjoint_parts_with_seeds_of_their_own(folder_root):
    data = FolderSet(imagenet(folder_root)._parts["train"], transform("mdeq"))
    orders = [SeededOrder(data, Share(2, process)) for process in range(2)]
    pairs = [list(order) for order in orders]
    assert sorted(index for part in pairs for index, _ in part) == list(range(12))
    assert len({seed for part in pairs for _, seed in part}) == 12
    orders[0].set_epoch(1)
    later = list(orders[0])
    assert not {seed for _, seed in later} & {seed for part in pairs for _, seed in part}


def test_training_images_may_validate(folder_root):
    """One image of each class is not trained on, and is cropped as in evaluation."""
    whole, data = imagenet(folder_root), imagenet(folder_root, validation=3)
    assert data.evaluation_sets == ("test", "validation")
    facts = data.facts()
    assert (facts["train"], facts["validation"], facts["test"]) == (9, 3, 5)
    assert facts["fingerprint"] == whole.facts()["fingerprint"]
    train, held = (set(data._parts[name]) for name in ("train", "validation"))
    assert train | held == set(whole._parts["train"])
    assert len(train) + len(held) == 12
    assert sorted(label for _, label in held) == [0, 1, 2]
    _, validation = data.val_dataloader()
    (batch,) = validation
    assert batch.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("part", ["train", "val"])
def test_missing_folder_names_the_command(folder_copy, part):
    shutil.rmtree(folder_copy / part)
    with pytest.raises(MissingDataError, match=rf"has no folder {part}: .* ImageNet` explains how"):
        imagenet(folder_copy)


def test_images_without_class_folders_are_refused(folder_copy):
    """The archive of ImageNet's validation images has no folders. An empty class is refused too."""
    for path in (folder_copy / "train/n00000001").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"for each class \(.*n00000001"):
        imagenet(folder_copy)
    shutil.rmtree(folder_copy / "train")
    (folder_copy / "train").mkdir()
    (folder_copy / "train/0.JPEG").touch()
    with pytest.raises(UserError, match=r"train must contain one folder of images for each class"):
        imagenet(folder_copy)


def test_classes_must_be_several_and_the_same(folder_copy, tmp_path):
    shutil.rmtree(folder_copy / "val/n00000002")
    with pytest.raises(UserError, match=r"same classes in train and val, .* of them: n00000002"):
        imagenet(folder_copy)
    with pytest.raises(UserError, match="at least two; one class"):
        imagenet(write_image_folder(tmp_path / "one", classes=1))


@pytest.mark.parametrize("workers", [0, 1])
def test_error_of_an_unreadable_image_is_one_line(folder_copy, workers):
    path = folder_copy / "train/n00000001/0002.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError) as error:
        fit(imagenet(folder_copy, workers=workers), 1)
    assert str(error.value).startswith(f"{path} cannot be read as an image (")
    assert "Traceback" not in str(error.value)
    write_image(path, np.random.default_rng(0), 50, 50)
    (folder_copy / "val/n00000000/0001.JPEG").write_text("not an image")
    with pytest.raises(UserError, match=r"0001.JPEG cannot be read as an image"):
        fit(imagenet(folder_copy, workers=workers), 1)


@pytest.mark.parametrize(
    ("write", "reason"), [(write_damaged_png, "broken PNG"), (write_huge_png, "400000000 pixels")]
)
def test_whatever_pillow_raises_names_the_file(folder_copy, write, reason):
    write(folder_copy / "val/n00000000/0001.JPEG")
    with pytest.raises(UserError, match=rf"0001.JPEG cannot be read as an image \(.*{reason}"):
        fit(imagenet(folder_copy, workers=1), 1)
