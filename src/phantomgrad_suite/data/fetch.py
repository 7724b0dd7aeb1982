"""Fetching data sets once, from a folder or by the library that reads them.

A data set is put together in a temporary folder, verified there by loading it, and only then moved
to its place.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchvision.datasets import CIFAR10

from phantomgrad_suite.data.graphs import pyg
from phantomgrad_suite.data.graphs.ppi import PPI
from phantomgrad_suite.data.graphs.tu import EMBEDDED, load_tu_dataset
from phantomgrad_suite.data.images.cifar import Cifar10
from phantomgrad_suite.data.images.imagenet import ImageNet
from phantomgrad_suite.data.text.corpora import FILES, FOLDER, WikiText103
from phantomgrad_suite.runs.errors import MissingDataError, UserError

# Merity et al. (2017), and an <eos> for every line.
TOKENS = {"train": 103_227_021, "validation": 217_646, "test": 245_569}


@dataclass(frozen=True)
class _Recipe:
    name: str
    places: tuple[str, ...]  # of its files, below the folder of all data; others to copy from
    load: Callable[[Path], str]  # reads it from the folder of all data; describes it
    download: Callable[[Path], Any]  # into its place below that folder


def fetch(name: str, target: Path, source: Path | None = None) -> str:
    """Fetch a data set unless it is there, and return a description of it.

    Args:
        name: of the data set; an unknown one is taken for that of a TU data set.
        target: the folder of all data (``runtime.paths.data``).
        source: a folder laid out like it, to copy from; ``None`` to download.
    """
    if name.upper() in EMBEDDED:
        return f"{name}: comes with the package"
    recipe = _RECIPES.get(name.casefold().replace("-", "").replace("_", "")) or _tu(name)
    place = target / recipe.places[0]
    if place.exists():
        return f"{recipe.name}: {recipe.load(target)} in {place} (already there)"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as folder:
        staging = Path(folder)
        if source:
            _copy(recipe, source, staging / recipe.places[0])
        else:
            _download(recipe, staging)
        try:
            summary = recipe.load(staging)
        except UserError as error:
            problem = str(error).partition(": fetch")[0]
            problem = problem.replace(str(staging), str(source or "the download"))
            raise UserError(f"{problem}: nothing was installed") from error
        place.parent.mkdir(parents=True, exist_ok=True)
        (staging / recipe.places[0]).rename(place)
    return f"{recipe.name}: {summary} in {place}"


def _copy(recipe: _Recipe, source: Path, new: Path) -> None:
    places = [source / place for place in recipe.places]
    if not (origin := next(filter(Path.is_dir, places), None)):
        raise MissingDataError(f"{source} does not contain {recipe.name}: expected {places[0]}")
    shutil.copytree(origin, new, copy_function=shutil.copyfile)


def _download(recipe: _Recipe, staging: Path) -> None:
    try:
        recipe.download(staging)
    except UserError:
        raise
    except Exception as error:
        raise MissingDataError(
            f"{recipe.name} could not be downloaded ({type(error).__name__}: {error}). Names are "
            "CIFAR10, WikiText103, PPI, ImageNet and those of TU data sets. On a machine without "
            f"network, use `--from DIR`, where DIR contains {recipe.places[0]}"
        ) from error


def _tu(name: str) -> _Recipe:
    return _Recipe(
        name,
        # The others are as in the official archive.
        (f"TUDataset/{name}/raw", f"TUDataset/{name}", name),
        load=lambda root: f"{len(load_tu_dataset(name, root / 'TUDataset')[0])} graphs",
        download=lambda root: pyg("datasets").TUDataset(str(root / "TUDataset"), name),
    )


def _load_images(data: Cifar10 | ImageNet) -> str:
    facts = data.facts()
    return f"{facts['train']} training and {facts['test']} test images"


def _explain_imagenet(root: Path) -> None:
    raise MissingDataError(
        "ImageNet needs an account of image-net.org (ILSVRC 2012) or Kaggle: unpack it, put the "
        "validation images into a folder for each class as well, and link or name the folder that "
        "has train/<class>/*.JPEG and val/<class>/*.JPEG: data/imagenet, or runtime.dataset.root"
    )


def _load_wikitext(root: Path) -> str:
    data = WikiText103(root=str(root))
    for part, tokens in data.corpus.parts.items():
        if len(tokens) != TOKENS[part]:
            raise UserError(
                f"{root / FOLDER / FILES[part]} has {len(tokens)} tokens, the {part} text "
                f"of WikiText-103 has {TOKENS[part]}"
            )
    return f"texts of {data.corpus.vocabulary} words"


def _download_wikitext(root: Path) -> None:
    from datasets import load_dataset

    texts = load_dataset("Salesforce/wikitext", "wikitext-103-v1")
    (root / FOLDER).mkdir()
    for part, file in FILES.items():
        text = "".join(f"{line.rstrip()}\n" for line in texts[part]["text"])
        (root / FOLDER / file).write_text(text, encoding="utf-8")


_RECIPES = {
    "cifar10": _Recipe(
        "CIFAR10",
        ("cifar-10-batches-py",),
        load=lambda root: _load_images(Cifar10(root=str(root))),
        download=lambda root: CIFAR10(str(root), download=True),
    ),
    "imagenet": _Recipe(
        "ImageNet",
        ("imagenet",),
        load=lambda root: _load_images(ImageNet(root=str(root / "imagenet"))),
        download=_explain_imagenet,
    ),
    "ppi": _Recipe(
        "PPI",
        ("ppi/raw",),
        load=lambda root: f"24 graphs with {PPI(root=str(root)).facts()['nodes']} nodes",
        download=lambda root: pyg("datasets").PPI(str(root / "ppi")),
    ),
    "wikitext103": _Recipe(
        "wikitext103", (FOLDER,), load=_load_wikitext, download=_download_wikitext
    ),
}
