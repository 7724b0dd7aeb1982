"""Fetching data sets once, from a folder or by the library that reads them.

A data set is put together in a temporary folder, verified there by loading it, and only then moved
to its place.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phantomgrad_suite.data.graphs.base import pyg_dataset
from phantomgrad_suite.data.graphs.ppi import PPI
from phantomgrad_suite.data.graphs.ppi_files import FILES
from phantomgrad_suite.data.graphs.tu import load_tu_dataset
from phantomgrad_suite.data.images.base import open_folder
from phantomgrad_suite.data.images.cifar import Cifar10
from phantomgrad_suite.data.sources import known_checksums, sha256, unpack
from phantomgrad_suite.data.text.vocabulary import read_lines
from phantomgrad_suite.data.text.wikitext import FILES as TEXTS
from phantomgrad_suite.data.text.wikitext import FOLDER, WikiText103
from phantomgrad_suite.runs.errors import MissingDataError, UserError

# Merity et al. (2017), and an <eos> for every line.
TOKENS = {"train": 103_227_021, "validation": 217_646, "test": 245_569}


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    name: str
    place: str  # of the files, below the folder of all data
    sources: tuple[str, ...]  # of these files, or an archive of them, below a ``--from`` folder
    files: tuple[str, ...] = ("*",)  # patterns of the files to copy
    required: tuple[str, ...] = ()
    download: Callable[[str], Any] | None  # into ``downloaded``, below the folder it is given
    downloaded: str = ""
    load: Callable[[Path], str]  # reads the data set from the folder of all data; describes it


def fetch(name: str, target: Path, source: Path | None = None) -> str:
    """Fetch a data set unless it is there, and return a description of it.

    Args:
        name: of the data set, or of its file in ``configs/dataset``; an unknown name is taken for
            that of a TU data set.
        target: the folder of all data (``runtime.paths.data``).
        source: a folder to copy it from; ``None`` to download it.

    Raises:
        MissingDataError: ``source`` does not contain it, or the download failed.
        UserError: a file is missing or damaged; nothing is installed.
    """
    plain = name.casefold().replace("-", "").replace("_", "")
    if plain == "imagenet":
        return _find_imagenet(source or target / "imagenet")
    recipe = _RECIPES.get(plain) or _tu(name)
    place = target / recipe.place
    incomplete = recipe is _WIKITEXT and not (place / TEXTS["train"]).exists()
    if place.is_dir() and any(place.iterdir()) and not incomplete:
        summary = _verified(recipe, target, f"delete {place} and fetch it again")
        return f"{recipe.name}: {summary} in {place} (already there)"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as folder:
        parts, staging = Path(folder) / "parts", Path(folder) / "data"
        new = staging / recipe.place
        for path in (parts, new.parent):
            path.mkdir(parents=True)
        origin = _copy(recipe, source, parts, new) if source else _download(recipe, parts, new)
        try:
            summary = _verified(recipe, staging, "nothing was installed")
        except UserError as error:
            raise UserError(str(error).replace(str(new), origin)) from error
        _move(staging, target)
    return f"{recipe.name}: {summary} in {place}"


def _verified(recipe: _Recipe, root: Path, remedy: str) -> str:
    place = root / recipe.place
    expected = {**dict.fromkeys(recipe.required), **known_checksums(recipe.place)}
    wrong = [
        file
        for file, digest in expected.items()
        if not (place / file).exists() or (digest and sha256(place / file) != digest)
    ]
    try:
        if wrong:
            raise UserError(f"{', '.join(wrong)} in {place} are missing or damaged")
        return recipe.load(root)
    except UserError as error:
        raise UserError(f"{str(error).split(': delete')[0]}: {remedy}") from error


def _copy(recipe: _Recipe, source: Path, parts: Path, new: Path) -> str:
    """Copy the files or unpack the archive in ``source``; return its path."""
    for origin in (source / place for place in recipe.sources):
        if origin.is_file():
            if known_checksums().get(origin.name, digest := sha256(origin)) != digest:
                raise UserError(f"{origin} is damaged (its checksum differs)")
            unpack(origin, parts)
            inner = parts / new.name
            (inner if inner.is_dir() else parts).rename(new)
            return str(origin)
        if origin.is_dir() and all((origin / file).exists() for file in recipe.required):
            new.mkdir()
            for path in (path for pattern in recipe.files for path in origin.glob(pattern)):
                shutil.copyfile(path, new / path.name)
            return str(origin)
    expected = " or ".join(str(source / place) for place in recipe.sources)
    files = f" with {', '.join(recipe.required[:2])}" if recipe.required else ""
    raise MissingDataError(f"{source} does not contain {recipe.name}: expected {expected}{files}")


def _download(recipe: _Recipe, parts: Path, new: Path) -> str:
    if not recipe.download:
        raise MissingDataError(
            f"{recipe.name} has no address to download it from: use `--from DIR`, where DIR "
            f"contains {recipe.sources[0]}"
        )
    try:
        recipe.download(str(parts))
        (parts / recipe.downloaded).rename(new)
    except Exception as error:
        raise MissingDataError(
            f"{recipe.name} could not be downloaded ({type(error).__name__}: {error}); on a "
            f"machine without network, copy {recipe.sources[0]} and use `--from DIR`"
        ) from error
    return "the download"


def _move(source: Path, target: Path) -> None:
    """Move the content of a folder; a folder that does not exist in ``target`` in one step."""
    for path in source.iterdir():
        if (target / path.name).is_dir():
            _move(path, target / path.name)
        else:
            path.replace(target / path.name)


def _find_imagenet(root: Path) -> str:
    if not any((root / part).is_dir() for part in ("train", "val")):
        raise MissingDataError(
            "ImageNet cannot be downloaded without an account of image-net.org (ILSVRC 2012): "
            f"unpack the training images to {root}/train/<class>/*.JPEG and the validation images "
            f"to {root}/val/<class>/*.JPEG, with the same 1000 class folders (n01440764 ...); "
            "a link to where they are will do"
        )
    train, val = (open_folder(root, part, "ImageNet") for part in ("train", "val"))
    return (
        f"ImageNet: {len(train)} training and {len(val)} validation images of "
        f"{len(train.classes)} classes in {root}"
    )


def _tu(name: str) -> _Recipe:
    return _Recipe(
        name=name,
        place=f"TUDataset/{name}/raw",
        sources=(f"TUDataset/{name}/raw", f"{name}/raw"),
        files=(f"{name}_*.txt",),
        required=(f"{name}_A.txt", f"{name}_graph_indicator.txt"),
        download=lambda folder: pyg_dataset("TUDataset")(folder, name),
        downloaded=f"{name}/raw",
        load=lambda root: f"{len(load_tu_dataset(name, root / 'TUDataset'))} graphs",
    )


def _download_cifar10(folder: str) -> None:
    from torchvision.datasets import CIFAR10

    CIFAR10(folder, download=True)


def _load_cifar10(name: str, root: Path) -> str:
    facts = Cifar10(root=str(root), name=name).facts()
    return f"{facts['train']} training and {facts['test']} test images"


def _download_wikitext(folder: str) -> None:
    from datasets import load_dataset

    texts = load_dataset("Salesforce/wikitext", "wikitext-103-v1")
    for part, file in TEXTS.items():
        lines = (f"{line.rstrip()}\n" for line in texts[part]["text"])
        Path(folder, file).write_text("".join(lines), encoding="utf-8")


def _load_wikitext(root: Path) -> str:
    folder = root / FOLDER
    for part, file in TEXTS.items():
        if (folder / file).exists():
            tokens = sum(len(line.split()) + 1 for line in read_lines(folder / file))
            if tokens != TOKENS[part]:
                expected = f"the {part} text of WikiText-103 has {TOKENS[part]}"
                raise UserError(f"{folder / file} has {tokens} tokens, {expected}")
    if not (folder / TEXTS["train"]).exists():
        return "validation and test text, for dataset=wikitext103_valid alone,"
    return f"texts of {WikiText103(root=str(root)).sizes()['vocabulary']} words"


_WIKITEXT = _Recipe(
    name="WikiText103",
    place=FOLDER,
    sources=(FOLDER, ""),
    files=tuple(TEXTS.values()),
    required=(TEXTS["validation"], TEXTS["test"]),
    download=_download_wikitext,
    load=_load_wikitext,
)
_RECIPES = {
    "wikitext103": _WIKITEXT,
    "wikitext103valid": _WIKITEXT,
    "ppi": _Recipe(
        name="PPI",
        place="ppi/raw",
        sources=("ppi/raw", "raw", ""),
        files=FILES,
        required=FILES,
        download=lambda folder: pyg_dataset("PPI")(folder),
        downloaded="raw",
        load=lambda root: f"24 graphs with {PPI(root=str(root)).facts()['nodes']} nodes",
    ),
    "cifar10": _Recipe(
        name="CIFAR10",
        place="cifar-10-batches-py",
        sources=("cifar-10-batches-py", "cifar-10-python.tar.gz"),
        download=_download_cifar10,
        downloaded="cifar-10-batches-py",
        load=lambda root: _load_cifar10("cifar10", root),
    ),
    "cifar10jpeg": _Recipe(
        name="CIFAR10-JPEG",
        place="cifar10-jpeg",
        sources=("cifar10-jpeg.tar.xz",),
        download=None,
        load=lambda root: _load_cifar10("cifar10-jpeg", root),
    ),
}
