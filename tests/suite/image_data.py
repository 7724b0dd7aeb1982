"""Small image data sets in the formats of the real ones."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def cifar_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with 100 training and 20 test images in CIFAR-10's own format."""
    write_cifar10(tmp_path / "root", monkeypatch)
    return tmp_path / "root"


@pytest.fixture(scope="session")
def folder_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageFolder with three classes: twelve training and five validation images."""
    return write_image_folder(tmp_path_factory.mktemp("imagenet"))


def write_cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Write 5 x 20 training and 20 test images of noise; return ``(N, 3, 32, 32)`` pixels.

    Labels run 0 to 9, over and over. torchvision's checksums are replaced by those of these files.
    """
    # Imported here, as in the other fixtures: tests of the library need not wait for Lightning.
    from torchvision.datasets import CIFAR10

    from phantomgrad_suite.data.images.cifar import CLASSES

    rng = np.random.default_rng(5)
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    contents = {name: rng.integers(256, size=(20, 3072), dtype=np.uint8) for name in names}
    sums = {}
    for name, pixels in contents.items():
        batch = {"data": pixels, "labels": [*range(10)] * 2}
        sums[name] = _dump(folder / name, batch)
    meta = _dump(folder / "batches.meta", {"label_names": list(CLASSES)})
    monkeypatch.setattr(CIFAR10, "train_list", [[name, sums[name]] for name in names[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setitem(CIFAR10.meta, "md5", meta)
    train = np.concatenate([contents[name] for name in names[:5]])
    return {
        "train": train.reshape(-1, 3, 32, 32),
        "test": contents["test_batch"].reshape(-1, 3, 32, 32),
    }


def _dump(path: Path, content: object) -> str:
    path.write_bytes(pickle.dumps(content))
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_image_folder(root: Path) -> Path:
    """Write a tiny ImageFolder, ``root/{train,val}/n<class>/*.JPEG``, of images of many sizes.

    Each of three classes has four training images, and one or two validation images.
    """
    rng = np.random.default_rng(11)
    for label in range(3):
        for part, count in (("train", 4), ("val", 1 + (label + 1) % 2)):
            folder = root / part / f"n{label:08}"
            folder.mkdir(parents=True)
            for i in range(count):
                width, height = (int(side) for side in rng.integers(40, 90, size=2))
                write_image(folder / f"{i:04}.JPEG", rng, width, height)
    return root


def write_image(path: Path, rng: np.random.Generator, width: int, height: int) -> None:
    """Write a JPEG file of four colours."""
    colours = rng.integers(256, size=(2, 2, 3), dtype=np.uint8)
    image = Image.fromarray(colours).resize((width, height), Image.Resampling.NEAREST)
    image.save(path, quality=95)
