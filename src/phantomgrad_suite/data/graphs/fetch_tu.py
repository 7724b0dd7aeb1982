"""Getting the TU data sets onto this machine, once, with checksums; never during a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from phantomgrad_suite.data.checksums import known_checksums, sha256
from phantomgrad_suite.data.graphs.tu_files import load_tu_dataset, tu_dataset
from phantomgrad_suite.runs.errors import MissingDataError, UserError

DEFAULT_NAMES = ("COX2", "PROTEINS")


def fetch_tu_dataset(name: str, target: Path, source: Path | None = None) -> str:
    """Bring a TU data set to ``target/TUDataset/<name>/raw`` and prepare it; say what was done.

    Args:
        name: as PyG knows it.
        target: the folder of all data (``paths.data``).
        source: a folder that holds ``TUDataset/<name>/raw`` or ``<name>/raw``; without one, PyG
            downloads the data set.

    Raises:
        MissingDataError: ``source`` does not hold the data set, or the download failed.
        UserError: a file is not the one our results were made with, or a part of the data set
            is there already; nothing was installed.
    """
    root = target / "TUDataset"
    raw = root / name / "raw"
    present = (raw / f"{name}_A.txt").exists()
    if not present and raw.is_dir() and any(raw.iterdir()):
        raise UserError(f"{raw} holds a part of {name}: delete that folder and fetch it again")
    if not present and source is not None:
        _copy(name, _find(name, source), raw)
    elif not present:
        _download(name, root)
    wrong = mismatches(name, raw)
    if wrong:
        raise UserError(
            f"{', '.join(wrong)} in {raw} are not the files the published results were made with: "
            "delete that folder and fetch it again"
        )
    graphs = load_tu_dataset(name, root)
    verified = "checksums verified" if _known(name) else "no checksums known"
    return f"{name}: {len(graphs)} graphs in {raw} ({'already there, ' * present}{verified})"


def mismatches(name: str, folder: Path) -> list[str]:
    """Return the files of a known data set that are missing or differ from their checksum."""
    return [
        file
        for file, expected in _known(name).items()
        if not (folder / file).exists() or sha256(folder / file) != expected
    ]


def _known(name: str) -> dict[str, str]:
    prefix = f"TUDataset/{name}/raw/"
    known = known_checksums().items()
    return {path.removeprefix(prefix): digest for path, digest in known if path.startswith(prefix)}


def _find(name: str, source: Path) -> Path:
    for folder in (source / "TUDataset" / name / "raw", source / name / "raw"):
        if (folder / f"{name}_A.txt").exists():
            return folder
    raise MissingDataError(
        f"{source} does not hold {name}: expected {source}/TUDataset/{name}/raw/{name}_A.txt"
    )


def _copy(name: str, source: Path, raw: Path) -> None:
    """Copy the files beside their place, check them, and move them there in one step."""
    wrong = mismatches(name, source)
    if wrong:
        raise UserError(
            f"{', '.join(wrong)} in {source} are missing or damaged: nothing was copied"
        )
    staging = raw.with_name("raw.part")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for path in _data_files(name, source):
        shutil.copyfile(path, staging / path.name)
    staging.replace(raw)


def _data_files(name: str, folder: Path) -> Iterable[Path]:
    return sorted(folder.glob(f"{name}_*.txt"))


def _download(name: str, root: Path) -> None:
    try:
        tu_dataset(name, root)
    except Exception as error:
        raise MissingDataError(
            f"{name} could not be downloaded ({type(error).__name__}: {error}); on a machine "
            "without network, copy its raw files and use `--from DIR`"
        ) from error
