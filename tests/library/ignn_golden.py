"""Numbers of the official IGNN code, and the rule that fills a model and two graphs to get them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from phantomgrad import FixedPoint, GradientEstimator, ImplicitGradient
from phantomgrad.models import GraphClassifier, Propagation, normalized_adjacency

GOLDEN = json.loads((Path(__file__).parent / "golden" / "ignn.json").read_text())
SOLVER = FixedPoint(max_evaluations=500, tol=1e-15, stop="absolute", norm="max")
IMPLICIT = ImplicitGradient(
    solver=FixedPoint(max_evaluations=500, tol=1e-15, stop="relative", norm="max")
)
# A path of four nodes; a triangle with a tail of two.
PAIRS = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (4, 6), (6, 7), (7, 8)]
EDGES = torch.tensor([*PAIRS, *((j, i) for i, j in PAIRS)]).t()
NODES = 9


def filled(shape: tuple[int, ...], t: int, amplitude: float, wave: Any = math.sin) -> Tensor:
    """The rule of the golden numbers: element n holds ``amplitude * wave(n^2 + n + t)``."""
    values = [amplitude * wave(n * n + n + t) for n in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).view(shape)


def golden(*keys: Any) -> Tensor:
    node = GOLDEN
    for key in keys:
        node = node[key]
    return torch.tensor(node, dtype=torch.float64)


def golden_model(gradient: GradientEstimator) -> GraphClassifier:
    """The model of the golden numbers, its weights projected."""
    model = GraphClassifier(3, 2, SOLVER, gradient, channels=4, dropout=0.0, kappa=0.9)
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            layer.weight.copy_(filled((4, 4), 500 + 2 * i, 0.5))
            layer.omega.copy_(filled((4, layer.omega.shape[1]), 501 + 2 * i, 1.0))
        model.hidden.weight.copy_(filled((4, 4), 2, 0.5))
        model.hidden.bias.copy_(filled((4,), 3, 0.1, math.cos))
        model.output.weight.copy_(filled((2, 4), 4, 0.5))
        model.output.bias.copy_(filled((2,), 5, 0.1, math.cos))
    model.project_()
    return model


def golden_inputs(edge_weight: float = 1.0) -> tuple[Tensor, Propagation, Propagation]:
    """Features, adjacency and sum pooling of the two graphs."""
    propagation = normalized_adjacency(EDGES, NODES, edge_weight=edge_weight, dtype=torch.float64)
    pooling = torch.zeros(2, NODES)
    pooling[0, :4] = pooling[1, 4:] = 1
    return filled((NODES, 3), 4, 1.0, math.cos), propagation, Propagation(pooling)


def golden_loss(model: GraphClassifier) -> Tensor:
    scores = model(*golden_inputs(), propagated=False)
    return F.nll_loss(scores, torch.tensor([1, 0]))


def close(ours: Tensor, reference: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(ours, reference, rtol=0, atol=tolerance)
