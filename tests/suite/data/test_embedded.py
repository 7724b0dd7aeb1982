"""Data sets that come with the package: complete, without any folder, and the known ones."""

import numpy as np
import torch
from PIL import Image

from phantomgrad_suite.data import Cifar10, WikiText103
from phantomgrad_suite.data.images.cifar import THUMBNAILS, averaged
from phantomgrad_suite.data.sources import sha256


def test_files_are_the_known_ones():
    folder = THUMBNAILS.parent
    known = (folder.parent / "SHA256SUMS").read_text().splitlines()
    files = sorted(path for path in folder.iterdir() if path.name != "README.md")
    assert known == [f"{sha256(path)}  embedded/{path.name}" for path in files]


def test_thumbnails_stand_in_rows_by_class():
    data = Cifar10(root="no such folder", name="cifar10-8x8", resolution=8)
    train, test = (data.pixels[part] for part in ("train", "test"))
    sheet = np.asarray(Image.open(THUMBNAILS))
    for (images, labels), first in ((train, 0), (test, 10)):
        assert images.shape == (10_000, 3, 8, 8)
        assert labels.bincount().tolist() == [1000] * 10
        for i in (0, 999, 1000, 9999):
            row, column = divmod(i, 1000)
            pixels = sheet[8 * (first + row) :][:8, 8 * column :][:, :8]
            assert np.array_equal(images[i].permute(1, 2, 0).numpy(), pixels)
            assert labels[i] == row
    facts = data.facts()
    assert facts["reduced"] == "the first 1000 training images of each class, 8 x 8 pixels"
    # That of the records which were made from the archive of JPEG files.
    assert facts["fingerprint"].startswith("sha256:6056d5a3006dfccdf4943e25ddbad105ca359546")


def test_averaged_pixels_are_rounded_means():
    images = torch.randint(256, (2, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    means = images.double().view(2, 3, 8, 4, 8, 4).mean((3, 5))
    assert (averaged(images.byte(), 8) - means).abs().max() <= 0.5
    assert averaged(images, 32) is images


def test_texts_need_no_folder():
    """Articles are whole in one part, by characters."""
    corpus = WikiText103(root="no such folder", name="wikitext103-characters").corpus
    sizes = {name: len(part) for name, part in corpus.parts.items()}
    assert (sizes, corpus.vocabulary) == ({"train": 1_688_669, "test": 268_126}, 256)
    lines = sum(int((part == 0).sum()) for part in corpus.parts.values())
    assert lines == 3760 + 4358 - 1  # those of both texts but the line before the first title
