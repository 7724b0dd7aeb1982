"""Fetching data sets once, from a folder or by the library that reads them.

A data set is put together in a temporary folder, verified there by loading it, and only then moved
to its place.
"""

import logging
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from torchvision.datasets import CIFAR10

from phantomgrad_suite.data.graphs import pyg
from phantomgrad_suite.data.graphs.ppi import PPI
from phantomgrad_suite.data.graphs.tu import load_tu_dataset
from phantomgrad_suite.data.images.cifar import Cifar10
from phantomgrad_suite.data.images.ilsvrc import link_imagenet
from phantomgrad_suite.data.images.imagenet import ImageNet
from phantomgrad_suite.data.sources import known_checksums, sha256
from phantomgrad_suite.data.text.corpora import FILES, FOLDER, UNKNOWN, WikiText103
from phantomgrad_suite.runs.errors import MissingDataError, UserError

# Merity et al. (2017), and an <eos> for every line.
TOKENS = {"train": 103_227_021, "validation": 217_646, "test": 245_569}


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Recipe:
    name: str
    place: str  # of its files, below the folder of all data
    load: Callable[[Path], str]  # reads it from the folder of all data; describes it
    download: Callable[[Path], Any] | None  # into its place below that folder
    archive: tuple[str, str] | None = None  # and the folder in which to unpack it
    other_places: tuple[str, ...] = ()  # of its files, below a folder to copy from
    # Takes it from a folder with another layout to its place, unless that folder lacks it.
    adopt: Callable[[Path, Path], bool] | None = None


def fetch(name: str, target: Path, source: Path | None = None) -> str:
    """Fetch a data set unless it is there and intact, and return a description of it.

    Files that are incomplete or damaged are replaced, and kept in ``<folder>.damaged``.

    Args:
        name: of the data set; an unknown one is taken for that of a TU data set.
        target: the folder of all data (``runtime.paths.data``).
        source: a folder laid out like it, to copy from; ``None`` to download.
    """
    plain = name.casefold().replace("-", "").replace("_", "")
    recipe = _RECIPES.get(plain) or _tu(name)
    place = target / recipe.place
    if source and source.resolve() in (target.resolve(), target.resolve() / recipe.place):
        raise UserError(f"--from must be another folder than {target} and {place}, got {source}")
    if place.exists():
        try:
            return f"{recipe.name}: {recipe.load(target)} in {place} (already there)"
        except UserError as error:
            log.warning("%s: fetching it again", _problem(error))
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as folder:
        staging = Path(folder)
        if source:
            _copy(recipe, source, staging)
        else:
            _download(recipe, staging)
        try:
            summary = recipe.load(staging)
        except UserError as error:
            problem = _problem(error).replace(str(staging), str(source or "the download"))
            raise UserError(f"{problem}: nothing was installed") from error
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            aside = place.with_name(f"{place.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)
        (staging / recipe.place).rename(place)
    return f"{recipe.name}: {summary} in {place}"


def _problem(error: UserError) -> str:
    return str(error).partition(": fetch")[0]


def _copy(recipe: _Recipe, source: Path, staging: Path) -> None:
    if recipe.adopt and recipe.adopt(source, staging / recipe.place):
        return
    places = [source / place for place in (recipe.place, *recipe.other_places)]
    origin, new = next(filter(Path.is_dir, places), None), staging / recipe.place
    if origin:
        for path in (path for path in origin.rglob("*") if path.is_file()):
            copy = new / path.relative_to(origin)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    elif recipe.archive and (source / recipe.archive[0]).is_file():
        _unpack(source / recipe.archive[0], staging / recipe.archive[1])
    else:
        archive = f" or {source / recipe.archive[0]}" if recipe.archive else ""
        raise MissingDataError(
            f"{source} does not contain {recipe.name}: expected {places[0]}{archive}"
        )


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of known content; its members are checked all the same."""
    if known_checksums().get(archive.name) != sha256(archive):
        raise UserError(f"{archive} is damaged or another file of this name (its checksum differs)")
    # Python has filters since 3.11.4; Debian 12 has 3.11.2.
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(archive) as content:
            content.extractall(folder, map(_checked, content), **safely)
    except tarfile.TarError as error:
        raise UserError(f"{archive} cannot be unpacked ({error})") from error


def _checked(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Raise ``TarError`` unless a member is a file or folder that stays in its place."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise tarfile.TarError(f"its member {member.name!r} is no file or folder within it")
    return member


def _download(recipe: _Recipe, staging: Path) -> None:
    files = recipe.archive[0] if recipe.archive else recipe.place
    if not recipe.download:
        raise MissingDataError(
            f"{recipe.name} has no address to download it from: use `--from DIR`, where DIR "
            f"contains {files}"
        )
    try:
        recipe.download(staging)
    except UserError:
        raise
    except Exception as error:
        raise MissingDataError(
            f"{recipe.name} could not be downloaded ({type(error).__name__}: {error}); on a "
            f"machine without network, use `--from DIR`, where DIR contains {files}"
        ) from error


def _tu(name: str) -> _Recipe:
    return _Recipe(
        name,
        f"TUDataset/{name}/raw",
        load=lambda root: f"{len(load_tu_dataset(name, root / 'TUDataset')[0])} graphs",
        download=lambda root: pyg("datasets").TUDataset(str(root / "TUDataset"), name),
        other_places=(f"TUDataset/{name}", name),  # as the official archive has them
    )


def _load_images(data: Cifar10 | ImageNet) -> str:
    facts = data.facts()
    return f"{facts['train']} training and {facts['test']} test images"


def _explain_imagenet(root: Path) -> None:
    raise MissingDataError(
        "ImageNet needs an account of image-net.org (ILSVRC 2012) or Kaggle: unpack it, then "
        "`python scripts/fetch_data.py ImageNet --from DIR` links DIR/train/<class>/*.JPEG and "
        "DIR/val (or Kaggle's DIR/ILSVRC/Data/CLS-LOC); if val has no folder for each class, "
        "DIR/ILSVRC2012_devkit_t12 or DIR/LOC_val_solution.csv must give the classes"
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
    for part in FILES:
        _write_text(root / FOLDER, part, texts[part]["text"])


def _write_text(folder: Path, part: str, lines: Iterable[str]) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    (folder / FILES[part]).write_text(text, encoding="utf-8")


def _adopt_parquet(source: Path, folder: Path) -> bool:
    """Write the texts of the hub's parquet files in ``source``; return whether it has any."""
    places = (source / place for place in ("wikitext-103-v1", "", "wikitext-103-raw-v1"))
    origin = next((place for place in places if [*place.glob("test-*.parquet")]), None)
    if origin is None:
        return False
    for part in ("test", "validation", "train"):  # the smallest first
        paths = sorted(origin.glob(f"{part}-*.parquet"))
        lines = [line for path in paths for line in _read_parquet(path)]
        if paths and not any(UNKNOWN in line for line in lines):
            raise UserError(
                f"{origin} has a {part} text without {UNKNOWN}, that of wikitext-103-raw-v1: a "
                "model of words needs wikitext-103-v1"
            )
        if paths:
            _write_text(folder, part, lines)
    return True


def _read_parquet(path: Path) -> list[str]:
    from pyarrow import parquet  # which datasets needs

    try:
        lines: list[str] = parquet.read_table(path, columns=["text"])["text"].to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read as a text ({error})") from error
    return lines


_RECIPES = {
    "cifar10": _Recipe(
        "CIFAR10",
        "cifar-10-batches-py",
        load=lambda root: _load_images(Cifar10(root=str(root))),
        download=lambda root: CIFAR10(str(root), download=True),
        archive=("cifar-10-python.tar.gz", "."),
    ),
    "imagenet": _Recipe(
        "ImageNet",
        "imagenet",
        load=lambda root: _load_images(ImageNet(root=str(root / "imagenet"))),
        download=_explain_imagenet,
        adopt=link_imagenet,
    ),
    "ppi": _Recipe(
        "PPI",
        "ppi/raw",
        load=lambda root: f"24 graphs with {PPI(root=str(root)).facts()['nodes']} nodes",
        download=lambda root: pyg("datasets").PPI(str(root / "ppi")),
    ),
    "wikitext103": _Recipe(
        "wikitext103",
        FOLDER,
        load=_load_wikitext,
        download=_download_wikitext,
        adopt=_adopt_parquet,
    ),
}
