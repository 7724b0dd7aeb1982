"""The cache of CIFAR-10's pixels: made once, and again when it is damaged or of other images."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data.cifar import ready
from image_data import write_image

pytestmark = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]


def test_images_are_decoded_once(jpeg_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ready(jpeg_copy)
    monkeypatch.setattr("phantomgrad_suite.data.images.pixels._decoded", None)
    second = ready(jpeg_copy)
    assert torch.equal(second.pixels.train.images, first.pixels.train.images)
    assert second.facts() == first.facts()
    assert [path.name for path in jpeg_copy.iterdir() if path.is_file()] == ["cifar10-jpeg.pt"]


@pytest.mark.parametrize("damage", ["a bit", "the end"])
def test_damaged_cache_is_said_and_made_again(
    jpeg_copy: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    before, cache = ready(jpeg_copy).facts(), jpeg_copy / "cifar10-jpeg.pt"
    content = bytearray(cache.read_bytes())
    if damage == "a bit":
        content[len(content) // 2] ^= 1
    else:
        del content[len(content) // 2 :]
    cache.write_bytes(content)
    assert ready(jpeg_copy).facts() == before
    assert f"{cache} is damaged: it is made again" in caplog.text
    caplog.clear()
    assert ready(jpeg_copy).facts() == before
    assert caplog.text == ""


def test_cache_of_other_images_is_made_again(
    jpeg_copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = ready(jpeg_copy).facts()
    write_image(jpeg_copy / "cifar10-jpeg/train/cat/0000.jpg", np.random.default_rng(9), 32, 32)
    assert ready(jpeg_copy).facts()["fingerprint"] != before["fingerprint"]
    assert "is of other data: it is made again" in caplog.text


def test_nothing_is_written_into_a_read_only_folder(
    jpeg_copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even by root, whom the file system would let."""
    jpeg_copy.chmod(0o555)
    assert ready(jpeg_copy).facts()["train"] == 100
    jpeg_copy.chmod(0o755)
    assert "could not be written ([Errno 13] the folder is read-only" in caplog.text
    assert [path.name for path in jpeg_copy.iterdir()] == ["cifar10-jpeg"]


def test_full_disk_is_no_failure(
    jpeg_copy: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("phantomgrad_suite.data.cache.torch.save", full)
    assert ready(jpeg_copy).facts()["train"] == 100
    assert "could not be written" in caplog.text
    assert [path.name for path in jpeg_copy.iterdir()] == ["cifar10-jpeg"]


def test_decoding_is_said(jpeg_copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "phantomgrad_suite")
    ready(jpeg_copy)
    assert f"decoding the images of {jpeg_copy / 'cifar10-jpeg'}, once" in caplog.text
