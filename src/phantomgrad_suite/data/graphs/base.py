"""Graphs as PyG reads them, kept in a cache; and batches that move between devices."""

from __future__ import annotations

import importlib
import importlib.metadata
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from phantomgrad.nn.propagation import Propagation
from phantomgrad_suite.data.cache import cached
from phantomgrad_suite.data.sources import fingerprint
from phantomgrad_suite.runs.errors import UserError


class GraphData:
    """The base of batches, which are frozen dataclasses of tensors and propagation operators."""

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Return a copy on another device or in another dtype (Lightning moves batches by this)."""
        parts, kinds = dict(vars(self)), (Tensor, Propagation)
        return replace(self, **apply_to_collection(parts, kinds, lambda x: x.to(*args, **kwargs)))  # type: ignore[type-var]


class Graph(NamedTuple):
    """One graph of a data set."""

    features: Tensor  # (N, F); F is 0 if the nodes have none
    edges: Tensor  # sources and targets, (2, E)
    labels: Tensor  # of the graph, (1,), or of its nodes, (N, labels)


def load_graphs(
    name: str, files: Sequence[Path], dataset: str, options: Sequence[str], folder: str = ""
) -> list[Graph]:
    """Read graphs by PyG from ``raw`` files; the tensors are cached in ``graphs.pt`` next to it.

    Args:
        name: of the data set.
        files: what PyG reads; the cache is renewed when they change.
        dataset: the class in ``torch_geometric.datasets``.
        options: its second argument, one for each part.
        folder: where the class looks for ``raw``, below its root.
    """
    raw = files[0].parent

    def make() -> list[Tensor]:
        try:
            graphs = _read(raw, dataset, options, folder)
            return [
                torch.tensor([graph.num_nodes for graph in graphs]),
                torch.tensor([graph.num_edges for graph in graphs]),
                torch.cat([torch.empty(g.num_nodes, 0) if g.x is None else g.x for g in graphs]),
                torch.cat([graph.edge_index for graph in graphs], dim=1),
                torch.cat([graph.y for graph in graphs]),
            ]
        except Exception as error:
            raise damaged(
                f"{raw} cannot be read ({type(error).__name__}: {error})", name
            ) from error

    source = f"{fingerprint(files)} torch_geometric {importlib.metadata.version('torch-geometric')}"
    nodes, edges, features, ends, labels = cached(raw.with_name("graphs.pt"), source, make)
    sizes = nodes.tolist()
    parts = (
        torch.split(features, sizes),
        torch.split(ends, edges.tolist(), dim=1),
        torch.split(labels, sizes if len(labels) == sum(sizes) else 1),
    )
    return [Graph(*graph) for graph in zip(*parts, strict=True)]


def damaged(problem: str, name: str) -> UserError:
    """Return the error of a data set that must be fetched again."""
    return UserError(
        f"{problem}: delete the folder and fetch {name} again with `python scripts/fetch_data.py "
        f"{name}`"
    )


def pyg_dataset(name: str) -> Any:
    """Return a class of ``torch_geometric.datasets``; torch deprecates what its import does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module("torch_geometric.datasets"), name)


def _read(raw: Path, dataset: str, options: Sequence[str], folder: str) -> list[Any]:
    # In a temporary folder, because PyG would not renew its own files when the raw ones change.
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / folder).mkdir(exist_ok=True)
        (Path(root) / folder / "raw").symlink_to(raw.resolve(), target_is_directory=True)
        kind = pyg_dataset(dataset)
        return [graph for option in options for graph in kind(root, option)]
