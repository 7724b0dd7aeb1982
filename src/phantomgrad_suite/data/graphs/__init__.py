"""Graphs as files give them, and what all data sets of graphs share."""

import importlib
import warnings
from typing import Any, NamedTuple

from torch import Tensor

from phantomgrad.graphs import Propagation
from phantomgrad_suite.data.base import DataModule
from phantomgrad_suite.runs.errors import UserError


class GraphModule(DataModule):
    """Graphs whose batches are named tuples of tensors and propagation operators."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Convert the operators to the precision of the features, which Lightning has converted."""
        dtype, parts = batch.features.dtype, batch._asdict().items()
        if dtype.itemsize < 4:  # torch has no sparse products in it
            raise UserError("trainer.precision must be 32-true, 64-true or mixed for graphs")
        operators = {name: p.to(dtype) for name, p in parts if isinstance(p, Propagation)}
        return batch._replace(**operators)


class Graph(NamedTuple):
    """One graph of a data set."""

    features: Tensor  # (N, F); F is 0 if the nodes have none
    edges: Tensor  # sources and targets, (2, E)
    labels: Tensor  # of the graph, (1,), or of its nodes, (N, labels)


def pyg(module: str) -> Any:
    """Import a module of ``torch_geometric``, without the deprecation warnings this raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"torch_geometric.{module}")
