"""ImageNet from class folders: the two protocols, the order, the workers, the validation part."""

import multiprocessing

import numpy as np
import pytest
import torch
from data.images.helpers import QUIET, fit, imagenet, normalised
from image_data import write_image, write_image_folder
from PIL import Image
from recorder import Recorder, trainer

from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.images.base import ImageBatch
from phantomgrad_suite.data.images.imagenet import FolderSet, SeededOrder, transform
from phantomgrad_suite.runs.errors import UserError

pytestmark = QUIET
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_batches_are_bytes_and_complete(folder_root):
    data = imagenet(folder_root, test_batch_size=2)
    sizes = {"classes": 3, "train": 12, "test": 5}
    assert {"name": "imagenet", **sizes}.items() <= data.facts().items()
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


def test_order_is_resumed_in_the_middle_of_an_epoch(folder_root):
    """With processes that read ahead."""
    whole = imagenet(folder_root, workers=2, batch_size=2).train_dataloader()
    expected = torch.cat([batch.images for batch in whole])
    loader = imagenet(folder_root, workers=2, batch_size=2).train_dataloader()
    loader.load_state_dict({**loader.state_dict(), "batches": 4})
    assert torch.equal(torch.cat([batch.images for batch in loader]), expected[8:])
    assert torch.equal(torch.cat([batch.images for batch in loader]), expected)


def test_workers_end_with_their_loader(folder_root):
    """By reference counts: those of a loader in a cycle are each waited for 5 s."""
    before = set(multiprocessing.active_children())
    loader = imagenet(folder_root, workers=1).train_dataloader()
    assert len([*loader]) == 3
    assert len(set(multiprocessing.active_children()) - before) == 1
    del loader
    assert set(multiprocessing.active_children()) <= before


def test_processes_take_disjoint_parts_with_seeds_of_their_own(folder_root):
    data = FolderSet(imagenet(folder_root)._parts["train"], transform("mdeq"))
    orders = [SeededOrder(data, Share(2, process)) for process in range(2)]
    pairs = [list(order) for order in orders]
    assert sorted(index for part in pairs for index, _ in part) == list(range(12))
    assert len({seed for part in pairs for _, seed in part}) == 12
    orders[0].set_epoch(1)
    later = list(orders[0])
    assert not {seed for _, seed in later} & {seed for part in pairs for _, seed in part}


def test_error_of_an_unreadable_image_is_one_line(tmp_path):
    """It comes from another process."""
    write_image_folder(tmp_path)
    path = tmp_path / "train/n00000001/0002.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError) as error:
        fit(imagenet(tmp_path, workers=1), 1)
    assert str(error.value).startswith(f"{path} cannot be read as an image (")
    assert "Traceback" not in str(error.value)
    write_image(path, np.random.default_rng(0), 50, 50)
    (tmp_path / "val/n00000000/0001.JPEG").write_text("not an image")
    with pytest.raises(UserError, match=r"0001.JPEG cannot be read as an image"):
        fit(imagenet(tmp_path, workers=1), 1)
