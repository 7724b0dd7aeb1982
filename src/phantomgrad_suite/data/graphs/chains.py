"""The Chains graphs of IGNN: a label that must travel along a path. Generated, never fetched."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from phantomgrad.checks import check_not_negative
from phantomgrad.graphs import Propagation, normalized_adjacency
from phantomgrad_suite.checkpoint.loaders import ResumableLoader
from phantomgrad_suite.data.graphs import GraphModule
from phantomgrad_suite.data.sources import digest
from phantomgrad_suite.runs.errors import UserError


class NodeBatch(NamedTuple):
    """One graph with labelled nodes."""

    features: Tensor  # (N, F)
    propagation: Propagation  # the normalised adjacency, (N, N)
    labels: Tensor  # classes, (N,)
    masks: dict[str, Tensor]  # which nodes belong to each part, (N,) each


@dataclass(kw_only=True, eq=False)
class Chains(GraphModule):
    """Directed chains; only the first node of each shows the class of all (Gu et al., 2020).

    Nodes have ``features`` numbers, of which the first two are the classes, with uniform noise from
    ``-noise`` to ``noise``.
    """

    evaluation_sets = ("test", "validation")
    classes = 2

    chains_per_class: int = 20
    length: int = 10
    features: int = 100
    noise: float = 0.0
    seed: int = 42

    def __post_init__(self) -> None:
        super().__init__()
        self.check_settings(2, "length", "features")
        self.check_settings(1, "chains_per_class")
        self.check_settings(0, "seed")
        check_not_negative("dataset.noise", self.noise)
        chains, length = self.chains_per_class, self.length
        if 2 * chains * length < 320:
            raise UserError(
                "2 x dataset.chains_per_class x dataset.length must be at least 320 nodes (20 "
                "training, 100 validation and 200 test nodes), "
                f"got 2 x {chains} x {length} = {2 * chains * length}"
            )
        self.in_channels = self.features
        self._batch = make_chains(chains, length, self.features, self.noise, self.seed)

    def facts(self) -> dict[str, Any]:
        sizes = {name: int(mask.sum()) for name, mask in self._batch.masks.items()}
        fingerprint = f"sha256:{digest([self._batch.features, self._batch.labels])}"
        return {"name": f"Chains-{self.length}", "fingerprint": fingerprint, **sizes}

    def loader(self, part: str) -> Any:
        """Return the same graph for every part; the task selects the nodes by masks."""
        return ResumableLoader([self._batch], batch_size=None)


def make_chains(
    chains_per_class: int, length: int, features: int, noise: float, seed: int
) -> NodeBatch:
    """Generate the graph, drawing random numbers in the order of the official generator."""
    rng = np.random.RandomState(seed)
    chains = 2 * chains_per_class
    nodes = chains * length
    first = torch.arange(0, nodes, length)
    labels = torch.arange(2).repeat_interleave(chains_per_class)
    x = torch.from_numpy(rng.uniform(-noise, noise, size=(nodes, features)))
    x[first, labels] += 1
    order = np.arange(nodes)
    rng.shuffle(order)
    parts = {"train": order[:20], "validation": order[20:120], "test": order[120:320]}
    sources = torch.arange(nodes).view(chains, length)[:, :-1].reshape(-1)
    return NodeBatch(
        features=(x / x.sum(dim=1, keepdim=True)).nan_to_num(posinf=0, neginf=0).float(),
        propagation=normalized_adjacency(torch.stack([sources, sources + 1]), nodes),
        labels=labels.repeat_interleave(length),
        masks={name: torch.from_numpy(np.isin(range(nodes), part)) for name, part in parts.items()},
    )
