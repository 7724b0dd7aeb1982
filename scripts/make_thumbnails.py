"""Make the embedded thumbnails of CIFAR-10, or compare them with those of your copy of CIFAR-10.

python scripts/make_thumbnails.py data --compare     data/cifar-10-batches-py: the original files
python scripts/make_thumbnails.py folder             folder/{train,test}/<class>/*, 32 x 32 pixels
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets import CIFAR10, ImageFolder

from phantomgrad_suite.data.images.cifar import THUMBNAILS, averaged, read_thumbnails

_OF_A_CLASS = 1000  # the first of the training images, and all of the test images


def main(arguments: list[str]) -> int:
    """Write the thumbnails, or print how much those of the package differ from them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compare", action="store_true", help="write nothing, print differences")
    parser.add_argument("--to", type=Path, default=THUMBNAILS, metavar="FILE")
    options = parser.parse_args(arguments)
    parts = [_by_class(options.folder, part) for part in ("train", "test")]
    if options.compare:
        train, _, test, _ = read_thumbnails()
        for name, ours, theirs in zip(("training", "test"), (train, test), parts, strict=True):
            _compare(name, list(ours.split(_OF_A_CLASS)), theirs)
    else:
        rows = [images[:_OF_A_CLASS] for part in parts for images in part]
        sheet = (
            torch.stack(rows).permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)
        )  # (160, 8000, 3)
        Image.fromarray(sheet.numpy()).save(options.to, lossless=True, quality=100, method=6)
    return 0


def _by_class(folder: Path, part: str) -> list[Tensor]:
    """Return the thumbnails of each class, ``(N, 3, 8, 8)`` bytes, in the order of the source."""
    if (folder / part).is_dir():
        found = ImageFolder(str(folder / part))
        pixels = np.stack([np.asarray(image) for image, _ in found])
        labels = found.targets
    else:
        original = CIFAR10(str(folder), train=part == "train")
        pixels, labels = original.data, original.targets
    images = averaged(torch.from_numpy(pixels).permute(0, 3, 1, 2), 8)
    return [images[torch.tensor(labels) == label] for label in range(10)]


def _compare(part: str, ours: list[Tensor], theirs: list[Tensor]) -> None:
    """Print the differences in grey levels; the order of the images within a class may differ."""
    nearest = [
        torch.cdist(mine.flatten(1).float(), other.flatten(1).float(), p=1).min(dim=1)
        for mine, other in zip(ours, theirs, strict=True)
    ]
    mean = torch.cat([near.values for near in nearest]).mean() / ours[0][0].numel()
    moved = sum(int((near.indices != torch.arange(len(near.indices))).sum()) for near in nearest)
    signed = torch.cat(
        [
            mine.float() - other[near.indices].float()
            for mine, other, near in zip(ours, theirs, nearest, strict=True)
        ]
    ).mean()
    total = sum(map(len, ours))
    print(
        f"{total} {part} images: mean absolute difference {mean:.2f} grey levels, mean difference "
        f"{signed:+.2f}; {moved} have another place within their class"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
