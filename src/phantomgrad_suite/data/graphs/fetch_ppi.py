"""Getting PPI onto this machine, once; never during a run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from phantomgrad_suite.data.graphs.ppi import FOLDER, PPI
from phantomgrad_suite.data.graphs.ppi_files import FILES, NODES, check, read_graphs
from phantomgrad_suite.runs.errors import MissingDataError, UserError


def fetch_ppi(target: Path, source: Path | None = None) -> str:
    """Bring PPI to ``target/ppi/raw`` and prepare it; say what was done.

    Args:
        target: the folder of all data (``paths.data``).
        source: a folder that holds the twelve raw files, or has them in ``ppi/raw`` or ``raw``;
            without one, PyG downloads them.

    Raises:
        MissingDataError: ``source`` does not hold PPI, or the download failed.
        UserError: a file is damaged or not PPI's, or a part of PPI is there already; nothing was
            installed.
    """
    folder = target / FOLDER
    present = _holds(folder / "raw")
    if not present and (folder / "raw").exists():
        raise UserError(f"{folder / 'raw'} holds a part of PPI: delete {folder} and fetch it again")
    if not present:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".ppi-") as part:
            _install(Path(part), folder, source)
    facts = PPI(root=str(target)).facts()
    known = "nodes of every graph as they should be, no checksums known"
    return (
        f"PPI: 24 graphs with {facts['nodes']} nodes in {folder / 'raw'} "
        f"({'already there, ' * present}{known})"
    )


def _install(part: Path, folder: Path, source: Path | None) -> None:
    """Check the files beside their place, and move them there in one step."""
    if source is None:
        _download(part)
    else:
        _copy(_find(source), part / "raw")
    try:
        check(part / "raw", "PPI", NODES)
    except UserError as error:
        origin = "the download" if source is None else source
        said = str(error).removeprefix(f"{part / 'raw'}/")
        raise UserError(f"{said} in {origin}: nothing was installed") from error
    folder.mkdir(exist_ok=True)
    (part / "raw").rename(folder / "raw")


def _holds(raw: Path) -> bool:
    return all((raw / file).exists() for file in FILES)


def _find(source: Path) -> Path:
    for raw in (source / FOLDER / "raw", source / "raw", source):
        if _holds(raw):
            return raw
    raise MissingDataError(
        f"{source} does not hold PPI: expected {FILES[0]} and the eleven other raw files there"
    )


def _copy(source: Path, raw: Path) -> None:
    raw.mkdir()
    for file in FILES:
        shutil.copyfile(source / file, raw / file)


def _download(folder: Path) -> None:
    try:
        read_graphs(folder)
    except Exception as error:
        raise MissingDataError(
            f"PPI could not be downloaded ({type(error).__name__}: {error}); on a machine "
            "without network, copy its twelve raw files and use `--from DIR`"
        ) from error
