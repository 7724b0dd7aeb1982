"""The raw files of a TU data set, PyG's loader of them, and what it keeps of them."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import logging
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

from phantomgrad_suite.data.checksums import sha256
from phantomgrad_suite.runs.errors import MissingDataError, UserError

log = logging.getLogger(__name__)

_NOTE = "source"  # of what the loader's own file is made, and its checksum


def load_tu_dataset(name: str, root: Path) -> Any:
    """Load a TU data set from ``root/<name>/raw`` by PyG's loader, without download.

    What the loader makes of the files is kept in ``root/<name>/processed``, and made again where
    it is not of these files and of this version of PyG, or damaged.

    Raises:
        MissingDataError: its files are not there.
        UserError: a file is damaged.
    """
    raw = root / name / "raw"
    needed = [raw / f"{name}_A.txt", raw / f"{name}_graph_indicator.txt"]
    if not all(path.exists() for path in needed):
        raise MissingDataError(
            f"{name} is not in {root}: fetch it with `python scripts/fetch_data.py {name}` "
            "(or, without network, add `--from DIR`), or set dataset.root"
        )
    source = f"{fingerprint(raw)} torch_geometric {importlib.metadata.version('torch-geometric')}"
    try:
        _prepare(name, root, source)
        graphs = tu_dataset(name, root)
    except OSError as error:
        log.warning("%s cannot be kept (%s): it is made again next time", raw.parent, error)
        graphs = _made_elsewhere(name, raw)
    labels = len(getattr(graphs, "y", ()))
    if labels != len(graphs):
        wrong = f"{raw / name}_graph_labels.txt has {labels} labels of {len(graphs)} graphs"
        raise UserError(f"{wrong}: {_fetch_again(name, raw)}")
    return graphs


def tu_dataset(name: str, root: Path) -> Any:
    """Make PyG's data set, which downloads its files where they are missing."""
    with warnings.catch_warnings():  # PyG scripts functions at import; torch deprecates that
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from torch_geometric.datasets import TUDataset

        return TUDataset(str(root), name)


def fingerprint(folder: Path) -> str:
    """Return one SHA-256 over the names and contents of the data files in ``folder``."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*_*.txt")):
        digest.update(path.name.encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def _prepare(name: str, root: Path, source: str) -> None:
    """Let the loader make its own file where there is none of ``source``, one process at a time."""
    folder = root / name / "processed"
    if _is_of(folder, source):
        return
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_of(folder, source):
            if folder.exists():
                log.info("%s is not known to be of these files: it is made again", folder)
                shutil.rmtree(folder)
            _made(name, root, root / name / "raw")
            (folder / _NOTE).write_text(_noted(folder, source))


def _is_of(folder: Path, source: str) -> bool:
    note, kept = folder / _NOTE, folder / "data.pt"
    return note.exists() and kept.exists() and note.read_text() == _noted(folder, source)


def _noted(folder: Path, source: str) -> str:
    return f"{source}\ndata.pt sha256:{sha256(folder / 'data.pt')}\n"


def _made(name: str, root: Path, raw: Path) -> Any:
    try:
        return tu_dataset(name, root)
    except OSError:
        raise
    except Exception as error:
        reason = f"cannot be read as {name} ({type(error).__name__}: {error})"
        raise UserError(f"{_damaged(name, raw)} {reason}: {_fetch_again(name, raw)}") from error


def _made_elsewhere(name: str, raw: Path) -> Any:
    """Have the loader keep its file in a folder that is deleted; the data set is in memory."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        folder.mkdir()
        (folder / "raw").symlink_to(raw.resolve(), target_is_directory=True)
        return _made(name, Path(place), raw)


def _damaged(name: str, raw: Path) -> Path:
    """Return the first of the files that is no table of numbers; the folder if all are."""
    from torch_geometric.io import read_txt_array

    for path in sorted(raw.glob(f"{name}_*.txt")):
        try:
            whole = read_txt_array(str(path), sep=",").numel() > 0
        except Exception:
            whole = False
        if not whole:
            return path
    return raw


def _fetch_again(name: str, raw: Path) -> str:
    return f"delete {raw} and fetch it again with `python scripts/fetch_data.py {name}`"
