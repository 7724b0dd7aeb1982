"""CIFAR-10 on its way to the device: normalised, augmented, resumed, shared by processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from data.cifar import DEVIATION, MEAN, Jpeg, as_set, ready, whole
from recorder import Recorder, trainer
from torch import Tensor

from phantomgrad_suite.checkpoint import RandomState
from phantomgrad_suite.data.base import Share
from phantomgrad_suite.data.images.base import evaluated
from phantomgrad_suite.runs.errors import UserError

pytestmark = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]


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


def test_two_processes_take_disjoint_parts(
    jpeg_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they see all of an epoch, and each evaluation image exactly once."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    data = Jpeg(root=str(jpeg_root), batch_size=15, test_batch_size=8, validation=31)
    loop = trainer(1, devices=2, strategy="ddp_spawn")
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
