"""Graphs as files give them, and batches that move between devices."""

import importlib
import warnings
from dataclasses import replace
from typing import Any, NamedTuple, Self

from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from phantomgrad.nn.propagation import Propagation


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


def pyg(module: str) -> Any:
    """Return a module of ``torch_geometric``; torch deprecates what its import does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"torch_geometric.{module}")
