"""The raw files of PPI: what is in them, whether they are whole, and PyG's loader of them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from phantomgrad.errors import UserError

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
        UserError: a file is damaged, or of another data set.
    """
    note, found = folder / "processed" / "fingerprint", fingerprint(folder / "raw")
    changed = not note.exists() or note.read_text() != found
    if changed:
        check(folder / "raw", name, nodes)
        read_graphs(folder, force_reload=True)
        with suppress(OSError):
            note.write_text(found)
    return read_graphs(folder)


def read_graphs(folder: Path, **options: Any) -> dict[str, Any]:
    """Call PyG's loader, which downloads the raw files where they are missing.

    Args:
        folder: as of :func:`load`.
        options: of the loader.
    """
    with warnings.catch_warnings():  # PyG scripts functions at import; torch deprecates that
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from torch_geometric.datasets import PPI

        splits = {"train": "train", "validation": "val", "test": "test"}
        return {part: PPI(str(folder), split, **options) for part, split in splits.items()}


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
        UserError: a file is damaged, or of another data set.
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
        raise UserError(f"{path} is of {called}, not of {name}: set dataset.root to another folder")
    inside = ends.size and ends.min() >= 0 and ends.max() < len(graph_id)
    if sorted(ids) != list(range(len(graph_id))) or not inside:
        raise _wrong(path, f"has other nodes than 0 to {len(graph_id) - 1}, or no links")
    if (graph_id[ends[:, 0]] != graph_id[ends[:, 1]]).any():
        raise _wrong(path, "links nodes of different graphs")


def _expect(path: Path, found: tuple[int, ...], expected: tuple[int, ...], what: str) -> None:
    if found != expected:
        raise _wrong(path, f"has the {what} {list(found)}, expected {list(expected)}")


def _wrong(path: Path, what: str) -> UserError:
    return UserError(f"{path} {what}: delete {path.parent.parent} and fetch or make it again")
