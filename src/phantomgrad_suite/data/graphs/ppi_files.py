"""The raw files of PPI: what is in them, whether they are whole, and PyG's loader of them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from phantomgrad_suite.runs.errors import UserError

SPLITS = {"train": "train", "validation": "valid", "test": "test"}
"""How the files call the parts."""
FILES = tuple(
    f"{split}_{kind}"
    for split in SPLITS.values()
    for kind in ("feats.npy", "labels.npy", "graph_id.npy", "graph.json")
)
NODES: dict[str, tuple[int, ...]] = {
    "train": (
        *(1767, 1377, 2263, 2339, 1578, 1021, 1823, 2488, 591, 3312),
        *(2401, 1878, 1819, 3480, 2794, 2326, 2650, 2815, 3163, 3021),
    ),
    "validation": (3230, 3284),
    "test": (3224, 2300),
}
"""Nodes of every graph."""
FEATURES, LABELS = 50, 121
_LEAST = 12  # nodes of a scaled graph
_NOTE = "fingerprint"  # of the raw files that the loader's own are made of


def scaled(scale: float) -> dict[str, tuple[int, ...]]:
    """Return the nodes of graphs that are so many times as large as those of PPI."""
    return {
        part: tuple(max(round(scale * count), _LEAST) for count in counts)
        for part, counts in NODES.items()
    }


def load(folder: Path, name: str, nodes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return the graphs of each part, by PyG's loader, without download.

    What the loader makes of the files is kept in ``folder/processed``, and made again where they
    have changed since.

    Args:
        folder: holds ``raw`` with all :data:`FILES`.
        name: of the data set that they should be.
        nodes: of every graph, by part.

    Raises:
        UserError: a file is damaged, or of another data set, or nothing can be kept.
    """
    found = fingerprint(folder / "raw")
    if not _is_prepared(folder, found):
        try:
            check(folder / "raw", name, nodes)
        except UserError as error:
            again = "fetch it again" if name == "PPI" else "it is made again"
            raise UserError(f"{error}: delete {folder} and {again}") from error
        try:
            _prepare(folder, found)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be written ({error.strerror}): set dataset.root to a folder "
                "that can"
            ) from error
    return read_graphs(folder)


def read_graphs(folder: Path) -> dict[str, Any]:
    """Call PyG's loader, which downloads the raw files where they are missing.

    Args:
        folder: as of :func:`load`.
    """
    with warnings.catch_warnings():  # PyG scripts functions at import; torch deprecates that
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from torch_geometric.datasets import PPI

        splits = {"train": "train", "validation": "val", "test": "test"}
        return {part: PPI(str(folder), split) for part, split in splits.items()}


def _is_prepared(folder: Path, found: str) -> bool:
    note = folder / "processed" / _NOTE
    return note.exists() and note.read_text() == found


def _prepare(folder: Path, found: str) -> None:
    """Let the loader make its own files, in one process at a time."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_prepared(folder, found):
            shutil.rmtree(folder / "processed", ignore_errors=True)
            read_graphs(folder)
            (folder / "processed" / _NOTE).write_text(found)


def fingerprint(raw: Path) -> str:
    """Return one SHA-256 over the names and contents of the raw files."""
    digest = hashlib.sha256()
    for file in FILES:
        digest.update(file.encode())
        with (raw / file).open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def check(raw: Path, name: str, nodes: Mapping[str, Sequence[int]]) -> None:
    """Refuse files that PyG's loader would stumble over, or take for what they are not.

    Args:
        raw: the folder of the files.
        name: of the data set that they should be.
        nodes: of every graph, by part.

    Raises:
        UserError: a file is damaged, or of another data set; the beginning of a sentence.
    """
    for part, split in SPLITS.items():
        arrays = {kind: _array(raw / f"{split}_{kind}.npy") for kind in _WIDTHS}
        total = sum(nodes[part])
        for kind, array in arrays.items():
            _expect(raw / f"{split}_{kind}.npy", array.shape, (total, *_WIDTHS[kind]), "shape")
        if not np.isin(arrays["labels"], (0, 1)).all():
            raise _wrong(raw / f"{split}_labels.npy", "holds labels other than 0 and 1")
        counts = tuple(len(list(members)) for _, members in groupby(arrays["graph_id"].tolist()))
        _expect(raw / f"{split}_graph_id.npy", counts, tuple(nodes[part]), "nodes of the graphs")
        _check_graph(raw / f"{split}_graph.json", name, arrays["graph_id"])


_WIDTHS: dict[str, tuple[int, ...]] = {
    "feats": (FEATURES,),
    "labels": (LABELS,),
    "graph_id": (),
}


def _array(path: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise _wrong(path, f"is no readable array ({type(error).__name__})") from error
    return array


def _check_graph(path: Path, name: str, graph_id: np.ndarray) -> None:
    try:
        content = json.loads(path.read_text())
        ids = [node["id"] for node in content["nodes"]]
        ends = np.array([(link["source"], link["target"]) for link in content["links"]])
        called = dict(content["graph"]).get("name", name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _wrong(path, f"is no readable graph ({type(error).__name__})") from error
    if called != name:
        raise _wrong(path, f"is of {called}, not of {name}")
    inside = ends.size and ends.min() >= 0 and ends.max() < len(graph_id)
    if sorted(ids) != list(range(len(graph_id))) or not inside:
        raise _wrong(path, f"has other nodes than 0 to {len(graph_id) - 1}, or no links")
    if (graph_id[ends[:, 0]] != graph_id[ends[:, 1]]).any():
        raise _wrong(path, "links nodes of different graphs")


def _expect(path: Path, found: tuple[int, ...], expected: tuple[int, ...], what: str) -> None:
    if found != expected:
        raise _wrong(path, f"has the {what} {list(found)}, expected {list(expected)}")


def _wrong(path: Path, what: str) -> UserError:
    return UserError(f"{path} {what}")
